package load

import (
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

func TestNamesAreAllowedAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for client := range 2000 {
		names := []string{clientName("bench", client), requestName(client, 1), requestName(client, 2), resourceName("bench", client, 0, 0), resourceName("bench", client, 0, 1), resourceName("bench", client, 1, 0)}
		for _, n := range names {
			if seen[n] {
				t.Fatalf("%s is used twice", n)
			}
			seen[n] = true
		}
	}
	resource, client, request := Names("bench")
	if _, err := lease.ParseResource(resource); err != nil {
		t.Error(err)
	}
	if _, err := lease.ParseClientID(client); err != nil {
		t.Error(err)
	}
	if _, err := lease.ParseRequestID(request); err != nil || len(request) != 26 {
		t.Errorf("request %q: %v", request, err)
	}
}

// However late it is looked at, every event keeps its instant.
func TestLineKeepsItsInstants(t *testing.T) {
	l := newLine(time.Second, 100, 0, 1)
	if _, _, ok := l.due(time.Second - 1); ok {
		t.Error("due before its time")
	}
	for k := range int64(501) {
		n, at, ok := l.due(6 * time.Second) // five seconds late
		if want := time.Second + time.Duration(k)*10*time.Millisecond; !ok || n != k || at != want {
			t.Fatalf("event %d: got %d at %v, %v, want %v", k, n, at, ok, want)
		}
	}
	if _, _, ok := l.due(6 * time.Second); ok {
		t.Error("more events than the rate allows")
	}
	if _, _, ok := new(line).due(time.Hour); ok {
		t.Error("a line of nothing has an event")
	}
}

func TestLinesShareARate(t *testing.T) {
	counts, instants := 0, map[time.Duration]bool{}
	for share := range 8 {
		l := newLine(0, 1000, share, 8)
		for {
			_, at, ok := l.due(time.Second - 1)
			if !ok {
				break
			}
			counts++
			instants[at] = true
		}
	}
	if counts != 1000 || len(instants) != 1000 {
		t.Errorf("got %d events at %d instants in a second, want 1000", counts, len(instants))
	}
	bounded := line{step: 1, last: 3}
	for range 3 {
		bounded.due(time.Hour)
	}
	if _, _, ok := bounded.due(time.Hour); ok {
		t.Error("a line goes on behind its end")
	}
}
