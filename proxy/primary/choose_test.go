package primary

import (
	"errors"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	var (
		down    = errors.New("cannot be reached")
		primary = Answer{System: 7, Timeline: 1}
		standby = Answer{System: 7, Timeline: 1, Recovery: true}
		newer   = Answer{System: 7, Timeline: 2}
		behind  = Answer{System: 7, Timeline: 2, Recovery: true}
		reader  = Answer{System: 7, Timeline: 1, ReadOnly: true}
		foreign = Answer{System: 8, Timeline: 9}
		fresh   = memory{current: -1}
		onA     = memory{current: 0, system: 7, timeline: 1}
		onB     = memory{current: 1, system: 7, timeline: 2}
	)
	for name, c := range map[string]struct {
		attrs  Attrs
		before memory
		a, b   any // Answer or error
		want   int
		why    [2]string // part of the reason; empty: eligible
	}{
		"the only primary":                         {ReadWrite, fresh, standby, primary, 1, [2]string{"standby", ""}},
		"the first of two":                         {ReadWrite, fresh, primary, primary, 0, [2]string{}},
		"nobody answers":                           {ReadWrite, fresh, down, down, -1, [2]string{"reached", "reached"}},
		"two standbys":                             {ReadWrite, fresh, standby, standby, -1, [2]string{"standby", "standby"}},
		"any takes a standby":                      {Any, fresh, down, standby, 1, [2]string{"reached", ""}},
		"a primary that only reads":                {ReadWrite, fresh, reader, primary, 1, [2]string{"read-only", ""}},
		"which primary does not mind":              {Primary, fresh, reader, primary, 0, [2]string{}},
		"a split brain at the start":               {ReadWrite, fresh, primary, newer, 1, [2]string{"left behind", ""}},
		"a promotion, the old primary alive":       {ReadWrite, onA, primary, newer, 1, [2]string{"left behind", ""}},
		"a promotion, the old primary down":        {ReadWrite, onA, down, newer, 1, [2]string{"reached", ""}},
		"the current one gives no answer":          {ReadWrite, onA, down, standby, 0, [2]string{"reached", "standby"}},
		"no way back to the old primary":           {ReadWrite, onB, primary, down, 1, [2]string{"left behind", "reached"}},
		"nor when a standby alone knows":           {ReadWrite, onA, primary, behind, 0, [2]string{"left behind", "standby"}},
		"a switch back":                            {ReadWrite, onB, Answer{System: 7, Timeline: 3}, behind, 0, [2]string{"", "standby"}},
		"the current one of two equal ones":        {ReadWrite, memory{current: 1, system: 7, timeline: 1}, primary, primary, 1, [2]string{}},
		"another database":                         {ReadWrite, onA, down, foreign, 0, [2]string{"reached", "another database cluster"}},
		"another database beside it at the start":  {ReadWrite, fresh, primary, Answer{System: 8, Timeline: 1}, 0, [2]string{"", "another database cluster"}},
		"any stays where it is":                    {Any, memory{current: 1, system: 7, timeline: 1}, primary, standby, 1, [2]string{}},
		"any leaves what gives no answer":          {Any, memory{current: 1, system: 7, timeline: 1}, standby, down, 0, [2]string{"", "reached"}},
		"any does not go where a failover left it": {Any, onB, primary, down, 1, [2]string{"left behind", "reached"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := look{answers: make([]Answer, 2), errs: make([]error, 2)}
			for i, said := range []any{c.a, c.b} {
				switch said := said.(type) {
				case Answer:
					l.answers[i] = said
				case error:
					l.errs[i] = said
				}
			}
			after, reasons := choose(c.attrs, c.before, l)
			if after.current != c.want {
				t.Errorf("got host %d, want %d", after.current, c.want)
			}
			for i, want := range c.why {
				if got := reasons[i]; (got == nil) != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
					t.Errorf("host %d: got %v, want %q", i, got, want)
				}
			}
			if after.timeline < c.before.timeline || c.before.system != 0 && after.system != c.before.system {
				t.Errorf("forgot: got %+v, before %+v", after, c.before)
			}
		})
	}
}
