package audit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"
)

// Every field alone, none, and all of them: a line looks as encoding/json would have it. A field that is new to line
// fails the test until append knows it.
func TestLinesAreTheJSONOfTheirFields(t *testing.T) {
	at := time.Date(2026, 7, 8, 9, 10, 11, 120_000_000, time.UTC)
	empty := line{Time: at}
	full := line{Time: at}
	lines := []line{empty}
	for i := range reflect.TypeFor[line]().NumField() {
		one := line{Time: at}
		for _, l := range []*line{&one, &full} {
			switch field := reflect.ValueOf(l).Elem().Field(i); field.Kind() {
			case reflect.String:
				field.SetString(fmt.Sprintf("ledger/%d-eu", i))
			case reflect.Uint16, reflect.Uint32, reflect.Uint64:
				field.SetUint(uint64(1000 + i))
			case reflect.Int64:
				field.SetInt(int64(1_000_000_000_000 + i))
			case reflect.Bool:
				field.SetBool(true)
			case reflect.Slice:
				field.Set(reflect.ValueOf([]string{"a/b", "c"}))
			case reflect.Struct: // the time
			default:
				t.Fatalf("a field of kind %v", field.Kind())
			}
		}
		lines = append(lines, one)
	}
	lines = append(lines, full)
	for _, odd := range []string{"", `"`, `\`, "\n", "é", "\xff", "<&>", "\u2028", "\x7f"} {
		lines = append(lines, line{Time: at, Cause: odd, Cycle: []string{odd}})
	}
	for _, l := range lines {
		want, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.append(nil, l.Time.AppendFormat(nil, time.RFC3339Nano)); string(got) != string(want) {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	l := line{
		Time: time.Now().UTC(), Node: "n1", From: 1000, Index: 1000, Term: 3, LeaseTime: 123456789012, Decision: "granted",
		Resource: "ledger/eu", Lease: "OmrQVRev3t8p8vappqfhcw", Token: 1234567, Mode: "exclusive", Identity: "anonymous",
		Client: "worker-17", Request: "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
	}
	at := l.Time.AppendFormat(nil, time.RFC3339Nano)
	var buffer []byte
	b.ReportAllocs()
	for b.Loop() {
		buffer = l.append(buffer[:0], at)
	}
}
