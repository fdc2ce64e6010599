package api

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// rawCodec sends bytes as they are: no client library would make these.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil } //nolint:errcheck // the tests send bytes
func (rawCodec) Unmarshal(data []byte, v any) error { return nil }
func (rawCodec) Name() string                       { return "proto" }

func (n *node) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(n.server.peers.addresses[n.id], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (n *node) sendRaw(ctx context.Context, conn *grpc.ClientConn, method string, message []byte) error {
	var nothing []byte
	return conn.Invoke(ctx, method, message, &nothing, grpc.ForceCodec(rawCodec{}))
}

func TestUnreadableMessages(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	conn := n.dial(t)
	for name, test := range map[string]struct {
		method  string
		message []byte
	}{
		"name not UTF-8": {lockpb.Locks_Acquire_FullMethodName, []byte("\x0a\x02a\xff")},
		"message cut":    {lockpb.Locks_Acquire_FullMethodName, []byte("\x0a\x7fa")},
		"unknown method": {"/lychgate.lock.v1.Locks/Steal", nil},
	} {
		r := wantRefusal(t, n.sendRaw(c.context(), conn, test.method, test.message), lockpb.Reason_INVALID, lockpb.Applied_NO)
		if r.message == "" {
			t.Errorf("%s: no message", name)
		}
	}
	for method, limit := range map[string]int{
		lockpb.Locks_Acquire_FullMethodName: maxRequest, lockpb.Locks_Heartbeat_FullMethodName: maxHeartbeatRequest,
	} {
		wantRefusal(t, n.sendRaw(c.context(), conn, method, make([]byte, limit+1)), lockpb.Reason_INVALID, lockpb.Applied_NO)
	}
	err := n.sendRaw(c.context(), conn, lockpb.Locks_Acquire_FullMethodName, make([]byte, maxSessionMessage+1))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("too long a message for anything: %v", err)
	}
	if _, err := n.locks.List(c.context(), &lockpb.ListRequest{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestReflectionIsOff(t *testing.T) {
	c := newCluster(t, 1)
	for name := range c.nodes[0].grpc.GetServiceInfo() {
		if strings.Contains(name, "reflection") {
			t.Errorf("%s is registered", name)
		}
	}
}

func TestGRPCHealthSeesALostQuorum(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	health := grpc_health_v1.NewHealthClient(n.dial(t))
	is := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) func() bool {
		return func() bool {
			for _, service := range []string{"", lockpb.Locks_ServiceDesc.ServiceName} {
				out, err := health.Check(c.context(), &grpc_health_v1.HealthCheckRequest{Service: service})
				check(t, err)
				if out.GetStatus() != want {
					return false
				}
			}
			return true
		}
	}
	c.until("it serves", is(grpc_health_v1.HealthCheckResponse_SERVING))
	for _, other := range c.nodes {
		c.disconnect(other)
	}
	c.until("it does not", is(grpc_health_v1.HealthCheckResponse_NOT_SERVING))
}
