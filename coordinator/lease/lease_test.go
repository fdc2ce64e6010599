package lease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParseResource(t *testing.T) {
	for _, test := range []struct{ in, wrong string }{
		{in: "ledger/eu"},
		{in: "a"},
		{in: "Shard-07_x.y:z@w+v=u"},
		{in: strings.Repeat("r", MaxResource)},
		{in: "", wrong: "is empty"},
		{in: strings.Repeat("r", MaxResource+1), wrong: "is longer than 256 bytes"},
		{in: "ledger/\xff", wrong: "is not valid UTF-8"},
		{in: "ledger/é", wrong: `has the character 'é'`},
		{in: "ledger eu", wrong: `has the character ' '`},
		{in: "ledger\x00eu", wrong: `has the character '\x00'`},
		{in: "/ledger", wrong: "is not normalised"},
		{in: "ledger/", wrong: "is not normalised"},
		{in: "ledger//eu", wrong: "is not normalised"},
		{in: "ledger/./eu", wrong: "is not normalised"},
		{in: "..", wrong: "is not normalised"},
	} {
		got, err := ParseResource(test.in)
		if test.wrong == "" {
			if err != nil || string(got) != test.in {
				t.Errorf("ParseResource(%q) = %q, %v", test.in, got, err)
			}
			continue
		}
		var name *NameError
		if !errors.As(err, &name) || name.Field != "resource" || !strings.Contains(name.Reason, test.wrong) {
			t.Errorf("ParseResource(%q) = %v; want one that %s", test.in, err, test.wrong)
		}
	}
}

func TestNamesSayTheirField(t *testing.T) {
	_, client := ParseClientID("")
	_, request := ParseRequestID(strings.Repeat("r", MaxRequestID+1))
	_, mode := ParseMode("upgrade")
	_, id := ParseID("xyz")
	for want, err := range map[string]error{
		"client_id is empty":                                client,
		"request_id is longer than 128 bytes":               request,
		`mode is "upgrade"; known are exclusive and shared`: mode,
		"lease_id is not 32 hexadecimal digits":             id,
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestIDCarriesItsGroup(t *testing.T) {
	id := NewID(0x0102, [14]byte{13: 9})
	back, err := ParseID(id.String())
	if err != nil || back != id || back.Group() != 0x0102 {
		t.Fatalf("ParseID(%q) = %v, %v; group %d", id, back, err, back.Group())
	}
	if strings.Contains(id.Hash().String(), id.String()) || id.Hash() == NewID(0x0102, [14]byte{}).Hash() {
		t.Error("the hash shows the id, or does not depend on it")
	}
	if _, err := ParseID(strings.Repeat("g", 32)); err == nil {
		t.Error("32 letters that are no hexadecimal digits were taken")
	}
}

func TestTokenBounds(t *testing.T) {
	if got := MaxToken.Incarnation(); got != MaxIncarnation {
		t.Errorf("incarnation of the largest token is %d, want %d", got, MaxIncarnation)
	}
	if float64(MaxToken) != float64(uint64(MaxToken)) || uint64(float64(MaxToken)) != uint64(MaxToken) {
		t.Error("the largest token is not exact in a double")
	}
}

// Which group a resource is in is fixed for the life of a cluster: these must not change with a release.
func TestGroupOf(t *testing.T) {
	for _, test := range []struct {
		resource Resource
		groups   uint16
		want     uint16
	}{
		{"ledger/eu", 0, 0},
		{"ledger/eu", 1, 0},
		{"a", 64, 0xaf63dc4c8601ec8c % 64}, // the published FNV-1a of "a"
		{"foobar", 1000, 0x85944171f73967e8 % 1000},
	} {
		if got := GroupOf(test.resource, test.groups); got != test.want {
			t.Errorf("GroupOf(%q, %d) = %d, want %d", test.resource, test.groups, got, test.want)
		}
	}
	counts := make(map[uint16]int)
	for i := range 9000 {
		counts[GroupOf(Resource(fmt.Sprintf("ledger/%d", i)), 3)]++
	}
	for group, n := range counts {
		if n < 2700 || n > 3300 || group > 2 {
			t.Errorf("group %d has %d of 9000", group, n)
		}
	}
}
