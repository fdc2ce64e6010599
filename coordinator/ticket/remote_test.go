package ticket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// coordinators answers key fetches without a network, so that the tests run in virtual time.
type coordinators struct {
	mu      sync.Mutex
	answers map[string]func() (int, string) // by host
	fetches int
	gate    chan struct{} // if set, an answer waits for it
}

func (c *coordinators) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.fetches++
	answer, gate := c.answers[r.URL.Host], c.gate
	c.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if answer == nil {
		return nil, errors.New("connection refused")
	}
	code, body := answer()
	return &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

func (c *coordinators) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fetches
}

func (c *coordinators) set(host string, answer func() (int, string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[host] = answer
}

func serving(t *testing.T, cluster string, index uint64, signers ...*Signer) func() (int, string) {
	text, err := Document{Ring: newTestRing(t, cluster, signers...), Index: index}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return func() (int, string) { return http.StatusOK, string(text) }
}

func newTestRemote(t *testing.T, c *coordinators, hosts ...string) *Remote {
	t.Helper()
	var urls []string
	for _, host := range hosts {
		urls = append(urls, "http://"+host)
	}
	r, err := NewRemote(RemoteConfig{URLs: urls, Client: &http.Client{Transport: c}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestRemoteFetchesOnceAndKeepsVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer := newTestSigner(t, 1)
		c := &coordinators{answers: map[string]func() (int, string){"n1": serving(t, "lg-test", 1, signer)}}
		r := newTestRemote(t, c, "n1")
		raw := sign(t, signer, testClaims())
		for range 3 {
			if got, err := r.Verify(t.Context(), raw); err != nil || got != testClaims() {
				t.Fatalf("got %+v, %v", got, err)
			}
		}
		if c.count() != 1 || r.Cluster() != "lg-test" || r.Version() != 1 {
			t.Errorf("%d fetches, cluster %q, version %d", c.count(), r.Cluster(), r.Version())
		}
	})
}

// Whatever is thrown at it, a verifier asks for the keys once per MinInterval.
func TestUnknownKeysShareFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinators{answers: map[string]func() (int, string){"n1": serving(t, "lg-test", 1, newTestSigner(t, 1))}}
		r := newTestRemote(t, c, "n1")
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Millisecond)
				_, err := r.Verify(t.Context(), sign(t, newTestSigner(t, byte(10+i%50)), testClaims()))
				if reasonOf(err) != UnknownKey {
					t.Errorf("got %v, want an unknown key", err)
				}
			})
		}
		wg.Wait()
		if most := 1 + int(time.Since(begin)/time.Second); c.count() > most {
			t.Errorf("%d fetches in %v", c.count(), time.Since(begin))
		}
	})
}

func TestNewKeyIsFoundWithinTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := newTestSigner(t, 1), newTestSigner(t, 2)
		c := &coordinators{answers: map[string]func() (int, string){
			"lagging": serving(t, "lg-test", 1, old), "current": serving(t, "lg-test", 1, old),
		}}
		r := newTestRemote(t, c, "lagging", "current")
		if _, err := r.Verify(t.Context(), sign(t, old, testClaims())); err != nil {
			t.Fatal(err)
		}
		c.set("current", serving(t, "lg-test", 2, old, young))
		begin := time.Now()
		if _, err := r.Verify(t.Context(), sign(t, young, testClaims())); err != nil {
			t.Errorf("new key: %v", err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("took %v", took)
		}
		if r.Version() != 2 {
			t.Errorf("version %d, want 2", r.Version())
		}
	})
}

func TestRemoteWithoutCoordinators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer := newTestSigner(t, 1)
		c := &coordinators{answers: map[string]func() (int, string){}}
		r := newTestRemote(t, c, "n1", "n2")
		raw := sign(t, signer, testClaims())
		if _, err := r.Verify(t.Context(), raw); reasonOf(err) != Unavailable {
			t.Errorf("no coordinator: got %v, want unavailable", err)
		}
		c.set("n2", serving(t, "lg-test", 1, signer))
		if _, err := r.Verify(t.Context(), raw); err != nil {
			t.Fatalf("coordinator is back: %v", err)
		}

		// Gone again, for longer than MaxAge: what the last keys verify goes on, old tickets and new ones.
		c.set("n2", nil)
		time.Sleep(10 * time.Minute)
		second := testClaims()
		second.Token++
		for _, claims := range []Claims{testClaims(), second} {
			if _, err := r.Verify(t.Context(), sign(t, signer, claims)); err != nil {
				t.Errorf("known key: %v", err)
			}
		}
		if _, err := r.Verify(t.Context(), sign(t, newTestSigner(t, 9), testClaims())); reasonOf(err) != Unavailable {
			t.Errorf("unknown key: got %v, want unavailable", err)
		}
	})
}

func TestHangingCoordinatorDelaysNobodyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinators{answers: map[string]func() (int, string){}, gate: make(chan struct{})}
		r := newTestRemote(t, c, "n1")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := r.Verify(ctx, sign(t, newTestSigner(t, 1), testClaims()))
		if reasonOf(err) != Unavailable || time.Since(begin) != 100*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(begin))
		}
		if _, err = r.Verify(t.Context(), sign(t, newTestSigner(t, 1), testClaims())); reasonOf(err) != Unavailable {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took > 10*time.Second+time.Second {
			t.Errorf("two bounded fetches took %v", took)
		}
	})
}

// A removed key stops verifying once the new set is there, cached verdicts included.
func TestRemovedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := newTestSigner(t, 1), newTestSigner(t, 2)
		c := &coordinators{answers: map[string]func() (int, string){"n1": serving(t, "lg-test", 1, old)}}
		r := newTestRemote(t, c, "n1")
		raw := sign(t, old, testClaims())
		if _, err := r.Verify(t.Context(), raw); err != nil {
			t.Fatal(err)
		}
		c.set("n1", serving(t, "lg-test", 2, young))
		time.Sleep(2 * time.Second)
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Verify(t.Context(), raw); reasonOf(err) != UnknownKey {
			t.Errorf("got %v, want an unknown key", err)
		}
	})
}

func TestRemoteRefusesAnotherClustersOrOlderKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer := newTestSigner(t, 1)
		c := &coordinators{answers: map[string]func() (int, string){"n1": serving(t, "lg-test", 5, signer)}}
		r := newTestRemote(t, c, "n1")
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.set("n1", serving(t, "lg-other", 9, newTestSigner(t, 2)))
		if err := r.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "lg-other") {
			t.Errorf("another cluster's keys: %v", err)
		}
		c.set("n1", serving(t, "lg-test", 4, newTestSigner(t, 2)))
		if err := r.Refresh(t.Context()); err != nil {
			t.Errorf("older keys: %v", err)
		}
		if r.Cluster() != "lg-test" || r.Version() != 1 {
			t.Errorf("cluster %q, version %d", r.Cluster(), r.Version())
		}
	})
}

func TestBadDocuments(t *testing.T) {
	for name, answer := range map[string]func() (int, string){
		"error status": func() (int, string) { return http.StatusServiceUnavailable, "" },
		"not JSON":     func() (int, string) { return http.StatusOK, "<html>" },
		"endless":      func() (int, string) { return http.StatusOK, strings.Repeat(" ", 2<<20) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newTestRemote(t, &coordinators{answers: map[string]func() (int, string){"n1": answer}}, "n1")
			if err := r.Refresh(t.Context()); err == nil {
				t.Errorf("%s: accepted", name)
			}
		})
	}
}

func TestCacheIsBounded(t *testing.T) {
	v := newVerdicts(10)
	for i := range 1000 {
		v.put(fmt.Sprint(i), 1, Claims{Group: uint16(i)})
		if n := len(v.young) + len(v.old); n > 20 {
			t.Fatalf("%d verdicts after %d", n, i)
		}
	}
	if c, ok := v.get("999", 1); !ok || c.Group != 999 {
		t.Error("the newest verdict is gone")
	}
	if _, ok := v.get("999", 2); ok {
		t.Error("a verdict outlived its key ring")
	}
}

func TestNewRemoteRefusesBadConfigurations(t *testing.T) {
	for _, config := range []RemoteConfig{
		{},
		{URLs: []string{"127.0.0.1:7601"}},
		{URLs: []string{"ftp://n1"}},
		{URLs: []string{"http://n1"}, Cluster: "a b"},
	} {
		if _, err := NewRemote(config); err == nil {
			t.Errorf("%+v accepted", config)
		}
	}
}

func TestClosedRemoteGoesOnWithItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer := newTestSigner(t, 1)
		c := &coordinators{answers: map[string]func() (int, string){"n1": serving(t, "lg-test", 1, signer)}}
		r := newTestRemote(t, c, "n1")
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if _, err := r.Verify(t.Context(), sign(t, signer, testClaims())); err != nil {
			t.Error(err)
		}
		if _, err := r.Verify(t.Context(), sign(t, newTestSigner(t, 2), testClaims())); reasonOf(err) != Unavailable {
			t.Errorf("unknown key after Close: %v", err)
		}
	})
}
