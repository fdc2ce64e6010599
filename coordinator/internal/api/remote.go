package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpccreds "google.golang.org/grpc/credentials"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Remote is a cluster as one sees it that is no member: through what the nodes say of themselves. It gives a Server
// groups that never lead, so that every call is forwarded. Run keeps it informed.
type Remote struct {
	config  RemoteConfig
	found   chan struct{} // closed once the cluster is known
	doubted chan struct{} // capacity 1: somebody could not reach a leader
	groups  []*remoteGroup
	peers   *peers

	mu      sync.Mutex
	members []Member
	roster  func([]Member) // see Follow; nil: nobody follows
	fault   string         // why the cluster is not known, or not seen any more
	heard   time.Time      // when a node last answered
}

// RemoteConfig is what a Remote is made from.
type RemoteConfig struct {
	Coordinators []string      // gRPC addresses of some nodes; the others are learned from them
	Every        time.Duration // how often all nodes are asked; 0 means 1 s
	Security     Security
	Logger       *slog.Logger
}

const (
	defaultEvery = time.Second
	doubtPause   = 50 * time.Millisecond // least time between two rounds
	blindRounds  = 5                     // rounds without an answer after which the cluster is out of sight
)

// NewRemote does no I/O.
func NewRemote(config RemoteConfig) (*Remote, error) {
	if len(config.Coordinators) == 0 {
		return nil, errors.New("api: no coordinators")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	config.Every = cmp.Or(config.Every, defaultEvery)
	r := &Remote{
		config: config, found: make(chan struct{}), doubted: make(chan struct{}, 1), fault: "no coordinator has answered yet",
		peers: newPeers(nil, anyNode(config.Security.dial())),
	}
	return r, nil
}

// unnamed marks, in place of an id, the address of a node whose id is not known.
const unnamed = "@"

// anyNode takes whichever node is at an address while its id is not known.
func anyNode(secure dialSecurity) dialSecurity {
	return func(node string) grpccreds.TransportCredentials {
		if strings.HasPrefix(node, unnamed) {
			node = ""
		}
		return secure(node)
	}
}

// Found is closed once the cluster is known; Groups and Members may be asked then.
func (r *Remote) Found() <-chan struct{} { return r.found }

// Groups are what a Server is made from.
func (r *Remote) Groups() []Group {
	out := make([]Group, len(r.groups))
	for i, g := range r.groups {
		out[i] = g
	}
	return out
}

// Members are the nodes as they are known now.
func (r *Remote) Members() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.members)
}

// Follow tells who the nodes are: now, and whenever that changes.
func (r *Remote) Follow(changed func([]Member)) {
	r.mu.Lock()
	r.roster = changed
	r.mu.Unlock()
	changed(r.Members())
}

// Fault is why the cluster is not known or not seen; empty if it is.
func (r *Remote) Fault() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}

// Run asks the nodes until ctx is done: at intervals, and at once when a leader could not be reached. It returns why it
// cannot go on: the cluster has changed into another one.
func (r *Remote) Run(ctx context.Context) error {
	defer r.peers.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.doubted:
			if !sleep(ctx, nil, doubtPause) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
		if err := r.round(ctx); err != nil {
			return err
		}
		timer.Reset(r.config.Every)
	}
}

// doubt has the nodes asked again soon.
func (r *Remote) doubt() {
	select {
	case r.doubted <- struct{}{}:
	default:
	}
}

// targets are the addresses to ask: of the members, and of those that the configuration names while there are none.
func (r *Remote) targets() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]string) // id, or address while that is not known, to address
	for _, m := range r.members {
		out[m.ID] = m.GRPC
	}
	// If no member answers they may all have moved, and the configuration may know more.
	if len(r.members) == 0 || r.fault != "" {
		for _, address := range r.config.Coordinators {
			out[unnamed+address] = address
		}
	}
	return out
}

// round asks all nodes once, and takes what they say.
func (r *Remote) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(r.config.Every, time.Second))
	defer cancel()
	var mu sync.Mutex
	var said []*lockpb.StatusResponse
	var last error
	var asking sync.WaitGroup
	for id, address := range r.targets() {
		asking.Go(func() {
			status, err := r.ask(ctx, id, address)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				last = err
			case status.GetCluster() != "" && len(status.GetGroups()) > 0:
				said = append(said, status)
			default:
				last = errors.New("the cluster is not created yet, as far as the coordinators say")
			}
		})
	}
	asking.Wait()
	return r.take(said, last)
}

func (r *Remote) ask(ctx context.Context, id, address string) (*lockpb.StatusResponse, error) {
	r.peers.learn(Member{ID: id, GRPC: address})
	conn, err := r.peers.conn(id)
	if err != nil {
		return nil, err
	}
	status, err := lockpb.NewClusterClient(conn).Status(ctx, &lockpb.StatusRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return nil, fmt.Errorf("ask the coordinator at %s: %w", address, err)
	}
	return status, nil
}

// take makes the groups what the nodes say they are.
func (r *Remote) take(said []*lockpb.StatusResponse, last error) error {
	if len(said) == 0 {
		r.missed(last)
		return nil
	}
	first := r.groups == nil
	if first {
		r.begin(said[0])
	}
	cluster := r.groups[0].Info().Cluster
	for _, status := range said {
		if len(status.GetGroups()) != len(r.groups) || (cluster != "" && status.GetCluster() != cluster) {
			return fmt.Errorf("node %s is of cluster %s with %d groups, and this was cluster %s with %d: start again to follow it",
				status.GetNode(), status.GetCluster(), len(status.GetGroups()), cluster, len(r.groups))
		}
	}
	for _, g := range r.groups {
		g.take(said)
	}
	r.takeMembers(said)
	if first {
		close(r.found)
	}
	return nil
}

func (r *Remote) begin(status *lockpb.StatusResponse) {
	for i := range status.GetGroups() {
		r.groups = append(r.groups, &remoteGroup{remote: r, number: i, changed: make(chan struct{})})
	}
}

// missed notes a round without an answer.
func (r *Remote) missed(last error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == "" && time.Since(r.heard) < blindRounds*r.config.Every {
		return
	}
	if r.fault == "" {
		r.config.Logger.Warn("no coordinator answers", "error", last)
	}
	r.fault = "no coordinator answers"
	if last != nil {
		r.fault += ": " + last.Error()
	}
}

// takeMembers takes the members from the node that has applied most.
func (r *Remote) takeMembers(said []*lockpb.StatusResponse) {
	newest := slices.MaxFunc(said, func(a, b *lockpb.StatusResponse) int { return cmp.Compare(a.GetAppliedIndex(), b.GetAppliedIndex()) })
	var members []Member
	for _, n := range newest.GetNodes() {
		members = append(members, Member{ID: n.GetId(), Peer: n.GetPeer(), GRPC: n.GetGrpc(), HTTP: n.GetHttp()})
	}
	r.mu.Lock()
	r.heard, r.fault = time.Now(), ""
	news := !slices.Equal(members, r.members)
	r.members = members
	tell := r.roster
	r.mu.Unlock()
	if news && tell != nil {
		tell(slices.Clone(members))
	}
}
