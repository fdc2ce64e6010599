package group

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// Behind a muzzle the library is asked only what it may answer: nothing, then what a current leader sends, then everything.
func TestMuzzle(t *testing.T) {
	outerAddr, outer := raft.NewInmemTransport("outer")
	innerAddr, inner := raft.NewInmemTransport("inner")
	outer.Connect(innerAddr, inner)
	inner.Connect(outerAddr, outer)
	m := newMuzzle(inner, uncovered)
	var library any // what the library was asked last
	ended := make(chan struct{})
	stop := make(chan struct{})
	go func() { // the library: it says yes to everything
		defer close(ended)
		for {
			select {
			case rpc := <-m.Consumer():
				library = rpc.Command
				rpc.Respond(yes(rpc.Command), nil)
			case <-stop:
				return
			}
		}
	}()

	const on, loose, off = "on", "loose", "off"
	for _, state := range []string{on, loose, off} {
		switch state {
		case loose:
			m.admit(7)
		case off:
			m.takeOff()
		}
		for _, c := range []struct {
			name string
			call func() (ok bool, err error)
			want bool
		}{
			{"vote", func() (bool, error) {
				var r raft.RequestVoteResponse
				err := outer.RequestVote("inner", innerAddr, &raft.RequestVoteRequest{Term: 9}, &r)
				return r.Granted, err
			}, state == off},
			{"pre-vote", func() (bool, error) {
				var r raft.RequestPreVoteResponse
				err := outer.RequestPreVote("inner", innerAddr, &raft.RequestPreVoteRequest{Term: 9}, &r)
				return r.Granted, err
			}, state == off},
			{"order to stand for election", func() (bool, error) {
				err := outer.TimeoutNow("inner", innerAddr, &raft.TimeoutNowRequest{}, &raft.TimeoutNowResponse{})
				return err == nil, nil
			}, state == off},
			{"entries of an older leader", func() (bool, error) {
				var r raft.AppendEntriesResponse
				err := outer.AppendEntries("inner", innerAddr, &raft.AppendEntriesRequest{Term: 6}, &r)
				if state == loose && r.Term != 7 {
					t.Errorf("the older leader is told term %d", r.Term)
				}
				return r.Success, ignore(err, errShut)
			}, state == off},
			{"entries", func() (bool, error) {
				var r raft.AppendEntriesResponse
				err := outer.AppendEntries("inner", innerAddr, &raft.AppendEntriesRequest{Term: 7}, &r)
				return r.Success, ignore(err, errShut)
			}, state != on},
			{"snapshot of an older leader", func() (bool, error) {
				var r raft.InstallSnapshotResponse
				err := outer.InstallSnapshot("inner", innerAddr, &raft.InstallSnapshotRequest{Term: 6}, &r, bytes.NewReader([]byte("x")))
				return r.Success, err
			}, state == off},
			{"snapshot", func() (bool, error) {
				var r raft.InstallSnapshotResponse
				err := outer.InstallSnapshot("inner", innerAddr, &raft.InstallSnapshotRequest{Term: 7}, &r, bytes.NewReader([]byte("x")))
				return r.Success, err
			}, state != on},
		} {
			library = nil
			got, err := c.call()
			if err != nil || got != c.want || (library != nil) != c.want {
				t.Errorf("%s, %s: granted is %t, the library saw %T, %v", state, c.name, got, library, err)
			}
		}
		if state == off {
			continue
		}
		if err := m.RequestVote("outer", outerAddr, &raft.RequestVoteRequest{}, nil); !errors.Is(err, errNoVote) {
			t.Errorf("%s: asks for votes: %v", state, err)
		}
		if err := m.RequestPreVote("outer", outerAddr, &raft.RequestPreVoteRequest{}, nil); !errors.Is(err, errNoVote) {
			t.Errorf("%s: asks for pre-votes: %v", state, err)
		}
	}
	close(stop)
	<-ended
	// One message is on its way to a library that has stopped.
	late := make(chan error, 1)
	go func() {
		late <- outer.TimeoutNow("inner", innerAddr, &raft.TimeoutNowRequest{}, &raft.TimeoutNowResponse{})
	}()
	for range 2 {
		if err := m.closeAll(); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-late:
	case <-time.After(30 * time.Second):
		t.Error("the message is never answered")
	}
}

// Heartbeats come past the queue, and not past the muzzle.
func TestMuzzleHoldsHeartbeats(t *testing.T) {
	var handle func(raft.RPC)
	m := newMuzzle(&heartbeats{set: func(h func(raft.RPC)) { handle = h }}, uncovered)
	defer m.closeAll()
	passed := 0
	m.SetHeartbeatHandler(func(rpc raft.RPC) {
		passed++
		rpc.Respond(yes(rpc.Command), nil)
	})
	beat := func(term uint64) raft.RPCResponse {
		answer := make(chan raft.RPCResponse, 1)
		handle(raft.RPC{Command: &raft.AppendEntriesRequest{Term: term}, RespChan: answer})
		return <-answer
	}
	if r := beat(7); passed != 0 || !errors.Is(r.Error, errShut) {
		t.Errorf("shut: %+v", r)
	}
	m.admit(7)
	if r := beat(6); passed != 0 || r.Response.(*raft.AppendEntriesResponse).Success {
		t.Errorf("loose, older: %+v", r)
	}
	if r := beat(7); passed != 1 || !r.Response.(*raft.AppendEntriesResponse).Success {
		t.Errorf("loose: %+v", r)
	}
	m.SetHeartbeatHandler(nil)
	if handle != nil {
		t.Error("the handler is still there")
	}
}

type heartbeats struct {
	raft.Transport
	set func(func(raft.RPC))
}

func (h *heartbeats) SetHeartbeatHandler(handle func(raft.RPC)) { h.set(handle) }
func (*heartbeats) Consumer() <-chan raft.RPC                   { return nil }

func yes(command any) any {
	switch command.(type) {
	case *raft.RequestVoteRequest:
		return &raft.RequestVoteResponse{Granted: true}
	case *raft.RequestPreVoteRequest:
		return &raft.RequestPreVoteResponse{Granted: true}
	case *raft.AppendEntriesRequest:
		return &raft.AppendEntriesResponse{Success: true}
	case *raft.InstallSnapshotRequest:
		return &raft.InstallSnapshotResponse{Success: true}
	}
	return &raft.TimeoutNowResponse{}
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// uncovered is a node without a snapshot.
func uncovered() uint64 { return 0 }

// A request of a pipeline that is refused comes back with the error, as every other.
func TestMuzzleRefusesInAPipeline(t *testing.T) {
	outerAddr, outer := raft.NewInmemTransport("outer")
	innerAddr, inner := raft.NewInmemTransport("inner")
	outer.Connect(innerAddr, inner)
	inner.Connect(outerAddr, outer)
	m := newMuzzle(inner, uncovered) // it lets nothing in yet
	defer m.Close()
	pipeline, err := outer.AppendEntriesPipeline("inner", innerAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer pipeline.Close()
	if _, err := pipeline.AppendEntries(&raft.AppendEntriesRequest{Term: 9}, new(raft.AppendEntriesResponse)); err != nil {
		t.Fatal(err)
	}
	select {
	case answer := <-pipeline.Consumer():
		if err := answer.Error(); !errors.Is(err, errShut) {
			t.Errorf("got %v, want that nothing comes in", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer")
	}
}
