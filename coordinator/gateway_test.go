package coordinator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// front is a gateway that runs in this process.
type front struct {
	t       *testing.T
	gateway *Gateway
	ended   chan error
	stop    context.CancelFunc
	conn    *grpc.ClientConn
}

// newFront starts a gateway that is told of some of the nodes only.
func newFront(t *testing.T, r *running, told ...int) *front {
	t.Helper()
	c := DefaultGatewayConfig()
	addresses := freeAddresses(t, 2)
	c.Listen = GatewayListen{GRPC: addresses[0], HTTP: addresses[1]}
	for _, i := range told {
		c.Coordinators = append(c.Coordinators, r.configs[i].Members[i].GRPC)
	}
	g, err := NewGateway(c, Deps{})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	f := &front{t: t, gateway: g, ended: make(chan error, 1), stop: cancel}
	go func() { f.ended <- g.Run(ctx) }()
	f.conn, err = grpc.NewClient(addresses[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() {
		_ = f.conn.Close()
		cancel()
		select {
		case err := <-f.ended:
			if err != nil {
				t.Errorf("the gateway ended: %v", err)
			}
		case <-time.After(patient):
			t.Error("the gateway does not stop")
		}
	})
	return f
}

func (f *front) awaitReady() {
	f.t.Helper()
	select {
	case <-f.gateway.Ready():
	case err := <-f.ended:
		f.t.Fatalf("the gateway ended: %v", err)
	case <-time.After(patient):
		f.t.Fatal("the gateway is not ready")
	}
}

func (f *front) locks() lockpb.LocksClient { return lockpb.NewLocksClient(f.conn) }

// untilLed makes a call until there is a leader to serve it: on a busy machine there may be none for a while.
func (f *front) untilLed(call func(context.Context) error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	for {
		err := call(ctx)
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			check(f.t, err)
			return
		}
	}
}

func (f *front) acquire(in *lockpb.AcquireRequest) (out *lockpb.AcquireResponse) {
	f.t.Helper()
	f.untilLed(func(ctx context.Context) (err error) {
		out, err = f.locks().Acquire(ctx, in)
		return err
	})
	return out
}

// leaderOf is the node, counted from 0, that leads a group as the gateway sees it.
func (f *front) leaderOf(group int) int {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	for ; ; time.Sleep(20 * time.Millisecond) { // between two looks
		status, err := lockpb.NewClusterClient(f.conn).Status(ctx, &lockpb.StatusRequest{})
		check(f.t, err)
		if leader := status.GetGroups()[group].GetLeader(); leader != "" {
			return int(leader[1] - '1')
		}
	}
}

func (f *front) get(path string) (int, string) {
	f.t.Helper()
	response, err := http.Get("http://" + f.gateway.HTTPAddr() + path)
	check(f.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	check(f.t, err)
	return response.StatusCode, string(text)
}

// A gateway without a cluster lives and is not ready; it serves once there is one, and says so again when it is gone.
func TestGatewayWaitsForItsCluster(t *testing.T) {
	r := newGrouped(t, 1, 2)
	f := newFront(t, r, 0)
	looks := time.NewTicker(20 * time.Millisecond)
	defer looks.Stop()
	for f.gateway.node.http.Load() == nil {
		<-looks.C
	}
	if code, text := f.get("/livez"); code != http.StatusOK {
		t.Errorf("livez: %d %s", code, text)
	}
	if code, text := f.get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "coordinator") {
		t.Errorf("readyz: %d %s", code, text)
	}
	r.startAll()
	f.awaitReady()
	if code, text := f.get("/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, text)
	}
	r.stop(0)
	for {
		code, _ := f.get("/readyz")
		if code == http.StatusServiceUnavailable {
			break
		}
		<-looks.C
	}
	if code, _ := f.get("/livez"); code != http.StatusOK {
		t.Errorf("livez without a cluster: %d", code)
	}
	r.start(0)
	r.awaitReady(0)
	for {
		if code, _ := f.get("/readyz"); code == http.StatusOK {
			break
		}
		<-looks.C
	}
}

// What a node does for a client, a gateway does that is no node: all calls, both APIs, and the streams.
func TestGatewayServesTheWholeAPI(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 3, groups)
	r.startAll()
	f := newFront(t, r, 1)
	f.awaitReady()
	watch, err := f.locks().Watch(r.context(), &lockpb.WatchRequest{Prefix: "gate/"})
	check(t, err)
	first, err := watch.Recv()
	check(t, err)
	if first.GetRevision() == "" {
		t.Error("the watch has no revision")
	}
	for group := range uint16(groups) {
		name := resourceOf(group, groups, "gate")
		held, err := f.locks().Acquire(r.context(), &lockpb.AcquireRequest{Resource: name, ClientId: "A", RequestId: fmt.Sprint(group)})
		check(t, err)
		for {
			message, err := watch.Recv()
			check(t, err)
			if len(message.GetChanges()) > 0 {
				if got := message.GetChanges()[0]; got.GetResource() != name || got.GetKind() != lockpb.Change_GRANTED {
					t.Errorf("group %d: watched %v", group, got)
				}
				break
			}
		}
		follow, err := f.locks().Follow(r.context(), &lockpb.AcquireRequest{Resource: name, ClientId: "B", RequestId: fmt.Sprint(group), WaitTimeout: 60_000})
		check(t, err)
		progress, err := follow.Recv()
		if err != nil || progress.GetProgress().GetPosition() != 1 {
			t.Errorf("group %d: progress %v, %v", group, progress, err)
		}
		_, err = f.locks().Release(r.context(), &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()})
		check(t, err)
		for {
			news, err := follow.Recv()
			check(t, err)
			if granted := news.GetGranted(); granted != nil {
				if granted.GetFencingToken() <= held.GetFencingToken() {
					t.Errorf("group %d: token %d after %d", group, granted.GetFencingToken(), held.GetFencingToken())
				}
				break
			}
		}
		for message, released := (*lockpb.WatchResponse)(nil), false; !released; { // past what the release and the grant told
			message, err = watch.Recv()
			check(t, err)
			for _, c := range message.GetChanges() {
				released = released || c.GetKind() == lockpb.Change_GRANTED
			}
		}
	}
	list, err := f.locks().List(r.context(), &lockpb.ListRequest{Prefix: "gate/", Stale: true})
	if err != nil || len(list.GetLocks()) != groups {
		t.Errorf("list: %v, %v", list, err)
	}
	status, err := lockpb.NewClusterClient(f.conn).Status(r.context(), &lockpb.StatusRequest{})
	if err != nil || status.GetNode() != "gateway" || len(status.GetGroups()) != groups || len(status.GetNodes()) != 3 {
		t.Errorf("status: %v, %v", status, err)
	}
	keys, err := lockpb.NewClusterClient(f.conn).Keys(r.context(), &lockpb.KeysRequest{})
	if err != nil || len(keys.GetKeys()) == 0 {
		t.Errorf("keys: %v, %v", keys, err)
	}
	if code, text := f.get("/.well-known/jwks.json"); code != http.StatusOK || !strings.Contains(text, `"cluster"`) {
		t.Errorf("key set: %d %s", code, text)
	}
	response, err := http.Post("http://"+f.gateway.HTTPAddr()+"/lock/acquire", "application/json",
		strings.NewReader(`{"resource": "rest/1", "client_id": "C", "request_id": "1"}`))
	check(t, err)
	text, _ := io.ReadAll(response.Body)
	check(t, response.Body.Close())
	if response.StatusCode != http.StatusOK || !strings.Contains(string(text), "ticket") {
		t.Errorf("REST: %d %s", response.StatusCode, text)
	}
	if code, text := f.get("/metrics"); code != http.StatusOK || !strings.Contains(text, `lychgate_active_leases{group="2"}`) {
		t.Errorf("metrics: %d", code)
	}
}

// Clients that only know a gateway hold their leases through the end of a leader, and a wait goes on.
func TestGatewayFollowsTheLeader(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 3, groups)
	r.calm()
	r.startAll()
	f := newFront(t, r, 0, 1, 2)
	f.awaitReady()
	c, err := client.Dial(client.Config{Addrs: []string{f.gateway.GRPCAddr()}, ClientID: "worker"})
	check(t, err)
	defer func() { _ = c.Close() }()
	var held []*client.Lease
	for group := range uint16(groups) {
		l, err := c.Acquire(r.context(), resourceOf(group, groups, "kept"), client.TTL(30*time.Second))
		check(t, err)
		held = append(held, l)
	}
	waited := resourceOf(1, groups, "awaited")
	before := f.acquire(&lockpb.AcquireRequest{Resource: waited, ClientId: "A", RequestId: "1"})
	var waiting sync.WaitGroup
	var after *lockpb.AcquireResponse
	var waitErr error
	waiting.Go(func() {
		after, waitErr = f.locks().Acquire(r.context(), &lockpb.AcquireRequest{Resource: waited, ClientId: "B", RequestId: "2", WaitTimeout: 55_000})
	})
	r.waiting(waited, 1)
	for n := range 2 { // each node that leads something, but one: a majority stays
		victim := f.leaderOf(1)
		r.stop(victim)
		r.until((victim+1)%3, "another leads", func(s *lockpb.StatusResponse) bool {
			leader := s.GetGroups()[1].GetLeader()
			return leader != "" && leader != fmt.Sprintf("n%d", victim+1)
		})
		r.start(victim)
		r.awaitReady(victim)
		for _, l := range held {
			if l.Err() != nil {
				t.Fatalf("round %d: the lease of %s is lost: %v", n, l.Resource(), l.Err())
			}
		}
	}
	f.untilLed(func(ctx context.Context) error {
		_, err := f.locks().Release(ctx, &lockpb.ReleaseRequest{LeaseId: before.GetLeaseId()})
		if err != nil && status.Code(err) == codes.NotFound {
			if _, applied := refusalOf(t, err); applied == lockpb.Applied_MAYBE {
				return nil // its first attempt lost its answer
			}
		}
		return err
	})
	waiting.Wait()
	if waitErr != nil || after.GetFencingToken() <= before.GetFencingToken() {
		t.Errorf("the wait: %v, %v", after, waitErr)
	}
	for _, l := range held {
		check(t, l.Release(r.context()))
	}
}

// A lease id of a group that the cluster has not, and a digest, are refused by the gateway itself.
func TestGatewayRefuses(t *testing.T) {
	r := newGrouped(t, 1, 1)
	r.startAll()
	f := newFront(t, r, 0)
	f.awaitReady()
	_, err := f.locks().Renew(r.context(), &lockpb.RenewRequest{LeaseId: lease.NewID(9, [14]byte{1}).String()})
	if reason, _ := refusalOf(t, err); reason != lockpb.Reason_LEASE_ENDED {
		t.Errorf("a lease of another cluster: %v", reason)
	}
	_, err = lockpb.NewClusterClient(f.conn).Status(r.context(), &lockpb.StatusRequest{Digest: true})
	if reason, _ := refusalOf(t, err); reason != lockpb.Reason_INVALID {
		t.Errorf("a digest: %v", reason)
	}
}

func TestGatewayConfig(t *testing.T) {
	good := func() GatewayConfig {
		c := DefaultGatewayConfig()
		c.Coordinators, c.Listen = []string{"127.0.0.1:7600"}, GatewayListen{"127.0.0.1:7690", "127.0.0.1:7691"}
		return c
	}
	for name, test := range map[string]struct {
		change func(*GatewayConfig)
		fields []string
	}{
		"good":            {func(*GatewayConfig) {}, nil},
		"nothing":         {func(c *GatewayConfig) { *c = GatewayConfig{} }, []string{"call", "coordinators", "limits.calls", "limits.connections", "listen.grpc", "listen.http", "log.format", "log.level", "node"}},
		"a URL":           {func(c *GatewayConfig) { c.Coordinators = append(c.Coordinators, "http://127.0.0.1") }, []string{"coordinators[1]"}},
		"open to all":     {func(c *GatewayConfig) { c.Listen.GRPC = "0.0.0.0:7600" }, []string{"tls"}},
		"open on purpose": {func(c *GatewayConfig) { c.Listen.GRPC, c.Insecure = "0.0.0.0:7600", true }, nil},
		"a loud log":      {func(c *GatewayConfig) { c.Log.Level = "loud" }, []string{"log.level"}},
	} {
		c := good()
		test.change(&c)
		if got := fieldsOf(c.Validate()); fmt.Sprint(got) != fmt.Sprint(test.fields) {
			t.Errorf("%s: got %v, want %v (%v)", name, got, test.fields, c.Validate())
		}
	}
}
