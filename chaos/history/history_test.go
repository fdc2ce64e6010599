package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const bound = 10 * time.Second

// legal is a history that a lock had, by construction: each step really happened at one moment, inside its call.
func legal(seed uint64) []Step {
	dice := rand.New(rand.NewPCG(seed, 0))
	var steps []Step
	at, token := time.Duration(0), uint64(0)
	around := func() (call, back time.Duration) {
		at += 10
		return at - time.Duration(dice.IntN(15)), at + time.Duration(dice.IntN(15))
	}
	for i := range 12 {
		token += 1 + uint64(dice.IntN(3))
		holders, shared := 1, dice.IntN(3) == 0
		if shared {
			holders += dice.IntN(3)
		}
		for h := range holders {
			s := Step{Kind: Acquire, Resource: "r", Lease: fmt.Sprintf("l%d.%d", i, h), Client: h, Shared: shared, Token: token}
			s.Call, s.Return = around()
			steps = append(steps, s)
		}
		look := Step{Kind: Look, Resource: "r", Client: 9, Token: token}
		look.Call, look.Return = around()
		steps = append(steps, look)
		for h := range holders {
			s := Step{Kind: End, Resource: "r", Lease: fmt.Sprintf("l%d.%d", i, h), Client: h}
			s.Call, s.Return = around()
			if dice.IntN(4) == 0 {
				s.Return = Forever
			}
			steps = append(steps, s)
		}
		free := Step{Kind: Look, Resource: "r", Client: 9}
		free.Call, free.Return = around()
		steps = append(steps, free)
	}
	return steps
}

func TestWhatALockDidIsAccepted(t *testing.T) {
	for seed := range uint64(30) {
		if failures := Check(legal(seed), bound); failures != nil {
			t.Errorf("seed %d: %v", seed, errors.Join(failures...))
		}
	}
}

// spoilt are steps that, put behind any legal history, no lock can have done.
var spoilt = map[string][]Step{
	"two exclusive holders": {
		{Kind: Acquire, Lease: "a", Token: 1, Call: 0, Return: 1},
		{Kind: Acquire, Lease: "b", Token: 2, Call: 2, Return: 3},
		{Kind: End, Lease: "a", Call: 9, Return: 10},
		{Kind: End, Lease: "b", Call: 9, Return: 10},
	},
	"the same token twice": {
		{Kind: Acquire, Lease: "a", Token: 1, Call: 0, Return: 1},
		{Kind: End, Lease: "a", Call: 2, Return: 3},
		{Kind: Acquire, Lease: "b", Token: 1, Call: 4, Return: 5},
		{Kind: End, Lease: "b", Call: 6, Return: 7},
	},
	"a smaller token later": {
		{Kind: Acquire, Lease: "a", Token: 2, Call: 0, Return: 1},
		{Kind: End, Lease: "a", Call: 2, Return: 3},
		{Kind: Acquire, Lease: "b", Token: 1, Call: 4, Return: 5},
		{Kind: End, Lease: "b", Call: 6, Return: 7},
	},
	"shared beside exclusive": {
		{Kind: Acquire, Lease: "a", Token: 1, Call: 0, Return: 1},
		{Kind: Acquire, Lease: "b", Token: 1, Shared: true, Call: 2, Return: 3},
		{Kind: End, Lease: "a", Call: 9, Return: 10},
		{Kind: End, Lease: "b", Call: 9, Return: 10},
	},
	"exclusive beside shared": {
		{Kind: Acquire, Lease: "a", Token: 1, Shared: true, Call: 0, Return: 1},
		{Kind: Acquire, Lease: "b", Token: 2, Call: 2, Return: 3},
		{Kind: End, Lease: "a", Call: 9, Return: 10},
		{Kind: End, Lease: "b", Call: 9, Return: 10},
	},
	"a join with another token": {
		{Kind: Acquire, Lease: "a", Token: 1, Shared: true, Call: 0, Return: 1},
		{Kind: Acquire, Lease: "b", Token: 2, Shared: true, Call: 2, Return: 3},
		{Kind: End, Lease: "a", Call: 9, Return: 10},
		{Kind: End, Lease: "b", Call: 9, Return: 10},
	},
	"free while held": {
		{Kind: Acquire, Lease: "a", Token: 1, Call: 0, Return: 1},
		{Kind: Look, Call: 2, Return: 3},
		{Kind: End, Lease: "a", Call: 9, Return: 10},
	},
	"held after the end": {
		{Kind: Acquire, Lease: "a", Token: 1, Call: 0, Return: 1},
		{Kind: End, Lease: "a", Call: 2, Return: 3},
		{Kind: Look, Token: 1, Call: 4, Return: 5},
	},
	"taken before the old one's time was up": {
		{Kind: Acquire, Lease: "a", Token: 1, Call: 0, Return: 1},
		{Kind: End, Lease: "a", Call: 5, Return: Forever},
		{Kind: Acquire, Lease: "b", Token: 2, Call: 2, Return: 4},
		{Kind: End, Lease: "b", Call: 9, Return: 10},
	},
	"a token that nobody asked for": {{Kind: Look, Token: 77, Call: 0, Return: 1}},
}

func TestWhatNoLockDoesIsRefused(t *testing.T) {
	for name, steps := range spoilt {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				history := legal(seed)
				for _, s := range steps {
					s.Resource, s.Call = "r", s.Call+100_000
					if s.Return != Forever {
						s.Return += 100_000
					}
					if s.Token > 0 {
						s.Token += 1000
					}
					history = append(history, s)
				}
				failures := Check(history, bound)
				var f *Failure
				if len(failures) != 1 || !errors.As(failures[0], &f) {
					t.Fatalf("seed %d: got %v, want one failure", seed, failures)
				}
				if len(f.Smallest) > len(steps) {
					t.Errorf("seed %d: the smallest part has %d steps, want %d at most:\n%v", seed, len(f.Smallest), len(steps), f)
				}
			}
		})
	}
}

func TestTokenThatOnlyOthersSawIsOfAnOpenRequest(t *testing.T) {
	steps := []Step{
		{Kind: Acquire, Resource: "r", Call: 1, Return: 2},
		{Kind: Look, Resource: "r", Token: 5, Call: 3, Return: 4},
		{Kind: Acquire, Resource: "r", Lease: "b", Token: 6, Call: 5, Return: 6},
		{Kind: End, Resource: "r", Lease: "b", Call: 7, Return: 8},
	}
	if failures := Check(steps, bound); failures != nil {
		t.Error(errors.Join(failures...))
	}
	if failures := Check(steps[1:], bound); failures == nil {
		t.Error("accepted without the request")
	}
}

func TestPictureShowsEachStep(t *testing.T) {
	got := Picture(spoilt["taken before the old one's time was up"])
	if n := strings.Count(got, "<rect"); n != 4 || !strings.Contains(got, "token 2") {
		t.Errorf("%d bars in %s", n, got)
	}
}
