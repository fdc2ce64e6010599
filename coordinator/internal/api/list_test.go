package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// A page from a frozen copy is the page from the state itself.
func TestListOfALargeState(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	sh := n.server.shards[0]
	for i := range 25 {
		c.acquire(n, acquireOf(fmt.Sprintf("r/%02d", i), "A", fmt.Sprint(i), 0))
	}
	c.begin(n, acquireOf("r/07", "B", "w", 20*time.Second))
	c.untilWaiting("r/07", 1)
	everything := func(lease.Resource) bool { return true }
	for _, p := range []page{
		{limit: 10},
		{limit: 10, after: "r/09"},
		{limit: 10, after: "r/14"},
		{limit: 100, prefix: "r/1"},
		{limit: 25},
		{limit: 3, prefix: "none"},
		{limit: 100, prefix: "r/0"},
	} {
		p.show = everything
		if p.prefix == "r/0" {
			p.show = func(name lease.Resource) bool { return name != "r/03" }
		}
		frozen, refused := sh.listFrozen(c.context(), p)
		if refused != nil {
			t.Fatal(refused)
		}
		var direct *lockpb.ListResponse
		sh.group.View(func(m *lock.Machine) { direct = listOf(m, p) })
		if len(frozen.GetLocks()) != len(direct.GetLocks()) || frozen.GetNext() != direct.GetNext() || frozen.GetRevision() == "" {
			t.Errorf("%+v: %d and next %q, want %d and next %q", p, len(frozen.GetLocks()), frozen.GetNext(), len(direct.GetLocks()), direct.GetNext())
			continue
		}
		for i, l := range frozen.GetLocks() {
			if want := direct.GetLocks()[i]; l.GetResource() != want.GetResource() || l.GetWaiting() != want.GetWaiting() || len(l.GetHolders()) != 1 {
				t.Errorf("%+v: got %v, want %v", p, l, want)
			}
		}
	}
}

// What is free by the time that it is looked at is left out, and the list goes on behind it.
func TestListPassesOverWhatIsFreeByNow(t *testing.T) {
	m := lock.New()
	names := []lease.Resource{"a", "b", "c"}
	if page := pageOf(m, names, 2); len(page.GetLocks()) != 0 || page.GetNext() != "b" {
		t.Errorf("got %v", page)
	}
	if page := pageOf(m, names[:2], 2); page.GetNext() != "" {
		t.Errorf("got %v", page)
	}
}
