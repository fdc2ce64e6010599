package access

import (
	"log/slog"
	"testing"
)

func TestOtherRulesCountAtOnce(t *testing.T) {
	rules, err := New([]Rule{{Identity: "a", Prefix: "x/", Allow: []Right{Read}}})
	if err != nil {
		t.Fatal(err)
	}
	others, err := New([]Rule{{Identity: "b", Prefix: "x/", Allow: []Right{Read}}})
	if err != nil {
		t.Fatal(err)
	}
	changed := rules.Changed()
	rules.Take(others)
	select {
	case <-changed:
	default:
		t.Error("nobody is told")
	}
	if rules.Allows("a", Read, "x/1") || !rules.Allows("b", Read, "x/1") {
		t.Error("the old rules count")
	}
}

func TestTokensCountWhenTheyAreTaken(t *testing.T) {
	path := tokenPath(t, Line("acme:worker", "old"))
	tokens, err := NewTokens(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	has := func(token string) bool { _, ok := tokens.Whose(token); return ok }
	write(t, path, Line("acme:worker", "new"))
	changed := tokens.Changed()
	take, err := tokens.Reload()
	if err != nil || !has("old") {
		t.Fatalf("before they are taken: %v, old %v", err, has("old"))
	}
	take()
	select {
	case <-changed:
	default:
		t.Error("nobody is told")
	}
	if has("old") || !has("new") {
		t.Errorf("old %v, new %v", has("old"), has("new"))
	}
	write(t, path, "rubbish")
	if _, err := tokens.Reload(); err == nil || !has("new") {
		t.Errorf("a bad file: %v, new %v", err, has("new"))
	}
}
