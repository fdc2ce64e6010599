package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
)

func TestJudge(t *testing.T) {
	r := func(resource uint32, granted, released int64, token uint64) load.Record {
		return load.Record{Resource: resource, Granted: granted, Released: released, Token: token}
	}
	for _, tt := range []struct {
		name    string
		records []load.Record
		want    string // empty: legal
	}{
		{"one after the other, told out of order", []load.Record{r(1, 20, 29, 2), r(1, 10, 20, 1), r(1, 30, 0, 9)}, ""},
		{"resources apart", []load.Record{r(1, 10, 40, 5), r(2, 20, 30, 4)}, ""},
		{"two holders", []load.Record{r(1, 10, 21, 1), r(1, 20, 30, 2)}, "while worker 0 held it with token 1"},
		{"token repeated", []load.Record{r(1, 10, 20, 3), r(1, 20, 30, 3)}, "token 3 after 3"},
		{"token goes back", []load.Record{r(1, 10, 20, 3), r(1, 20, 30, 2)}, "token 2 after 3"},
	} {
		err := judge(tt.records)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrViolated) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}
