package lease

import (
	"strings"
	"testing"
)

func TestParseIdentity(t *testing.T) {
	for name, test := range map[string]struct {
		text, tenant string
		refused      string // what the error says; empty: accepted
	}{
		"without a tenant":     {text: "worker-7", tenant: ""},
		"with a tenant":        {text: "acme:worker", tenant: "acme"},
		"the first colon":      {text: "acme:eu:worker", tenant: "acme"},
		"a slash and an at":    {text: "acme:host/a@b", tenant: "acme"},
		"longest":              {text: strings.Repeat("a", MaxIdentity), tenant: ""},
		"empty":                {text: "", refused: "is empty"},
		"too long":             {text: strings.Repeat("a", MaxIdentity+1), refused: "longer than"},
		"a space":              {text: "acme:the worker", refused: "has the character"},
		"a star":               {text: "acme:*", refused: "has the character"},
		"not UTF-8":            {text: "acme:\xff", refused: "UTF-8"},
		"a line break":         {text: "acme:a\nb", refused: "has the character"},
		"nothing before colon": {text: ":worker", refused: "no tenant"},
		"nothing after colon":  {text: "acme:", refused: "no name"},
	} {
		id, err := ParseIdentity(test.text)
		switch {
		case test.refused == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.refused == "" && (string(id) != test.text || id.Tenant() != test.tenant):
			t.Errorf("%s: got %q of tenant %q, want tenant %q", name, id, id.Tenant(), test.tenant)
		case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
			t.Errorf("%s: got error %v, want one that says %q", name, err, test.refused)
		}
	}
}
