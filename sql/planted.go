package fencesql

import (
	"strings"

	"github.com/lychgate/lychgate/chaos/seeded"
)

// planted is a script with the bug that is planted in it; see package chaos/seeded. In a release it is the script.
func planted(text string) string {
	change := func(from, to string) { text = strings.ReplaceAll(text, from, to) }
	if seeded.Is(seeded.ActivityBeforeLock) {
		change("has cached.\n    perform pg_stat_clear_snapshot();", "has cached.")
	}
	if seeded.Is(seeded.NullStartGone) {
		change("(a.backend_start is null or fence.micros(a.backend_start) = b.started)", "fence.micros(a.backend_start) = b.started")
	}
	if seeded.Is(seeded.JoinsForShare) {
		change("for no key update", "for share")
	}
	if seeded.Is(seeded.TakeoverWithoutWait) {
		change("exit when v_alive = '{}'", "exit when true")
	}
	if seeded.Is(seeded.FloorNotDurable) {
		change("set_config('synchronous_commit', 'on', true)", "set_config('synchronous_commit', 'off', true)")
	}
	if seeded.Is(seeded.FloorNotCompared) {
		change("if greatest(v_floor.token, v_folded.token) > p_token then", "if false then")
	}
	if seeded.Is(seeded.PreparedIgnored) {
		change("if v_pending is not null then", "if false then")
	}
	return text
}
