package postgres

import (
	"strings"
	"testing"

	"github.com/lychgate/lychgate/proxy/gate"
)

func TestEveryReasonHasItsOwnCode(t *testing.T) {
	seen := map[string]gate.Reason{}
	for _, r := range gate.Reasons() {
		code := sqlstate(r)
		if other, taken := seen[code]; taken || !strings.HasPrefix(code, "LG") || len(code) != 5 {
			t.Errorf("%v has the code %q, as has %v", r, code, other)
		}
		seen[code] = r
		n := noticeOf(&gate.Refusal{Reason: r, Detail: "d", Hint: "h"}, severityFatal)
		if n.Message == "" || n.Detail != "d" || n.Hint != "h" || n.Severity != "FATAL" {
			t.Errorf("%v: %+v", r, n)
		}
	}
}
