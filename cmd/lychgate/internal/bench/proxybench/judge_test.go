package proxybench

import (
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/adapters/postgres"
)

func TestStaleWriteIsJudged(t *testing.T) {
	var r run
	if err := r.judgeStale(nil); !errors.Is(err, ErrViolated) {
		t.Errorf("accepted: got %v, want %v", err, ErrViolated)
	}
	if err := r.judgeStale(&pgconn.PgError{Code: postgres.CodeStaleToken}); err != nil {
		t.Errorf("refused as stale: got %v", err)
	}
	for _, other := range []error{&pgconn.PgError{Code: "57P01"}, io.ErrUnexpectedEOF} {
		if err := r.judgeStale(other); err == nil || errors.Is(err, ErrViolated) {
			t.Errorf("refused otherwise, %v: got %v, want an error that blames no invariant", other, err)
		}
	}
}

func TestFloorsAreJudged(t *testing.T) {
	for name, tt := range map[string]struct {
		before, now map[string]uint64
		violated    bool
	}{
		"the first look":   {nil, map[string]uint64{"a": 1}, false},
		"higher, one more": {map[string]uint64{"a": 1}, map[string]uint64{"a": 2, "b": 1}, false},
		"the same":         {map[string]uint64{"a": 2}, map[string]uint64{"a": 2}, false},
		"lower":            {map[string]uint64{"a": 2, "b": 9}, map[string]uint64{"a": 1, "b": 9}, true},
		"gone":             {map[string]uint64{"a": 2}, map[string]uint64{}, true},
	} {
		j := judge{floors: tt.before}
		if err := j.see(tt.now); errors.Is(err, ErrViolated) != tt.violated {
			t.Errorf("%s: got %v, want a violation: %v", name, err, tt.violated)
		}
	}
}
