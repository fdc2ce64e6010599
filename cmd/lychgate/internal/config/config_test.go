package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// level is written as one word.
type level int

func (l *level) UnmarshalText(b []byte) error {
	switch string(b) {
	case "low":
		*l = 1
	case "high":
		*l = 2
	default:
		return fmt.Errorf("is %q; known are low and high", b)
	}
	return nil
}

func (l level) MarshalText() ([]byte, error) { return []byte([]string{"", "low", "high"}[l]), nil }

type sample struct {
	Name   string            `koanf:"name"`
	Limit  int               `koanf:"limit"`
	Ratio  float64           `koanf:"ratio"`
	On     bool              `koanf:"on"`
	Wait   time.Duration     `koanf:"wait"`
	Level  level             `koanf:"level"`
	Peers  []string          `koanf:"peers"`
	Labels map[string]string `koanf:"labels"`
	Listen sampleListen      `koanf:"listen"`
	Gates  []sampleGate      `koanf:"gates"`
	Secret string            `koanf:"admin_password"`
}

type sampleListen struct {
	GRPC string `koanf:"grpc"`
	HTTP string `koanf:"http"`
}

type sampleGate struct {
	Store string  `koanf:"store"`
	Max   uint16  `koanf:"max"`
	TLS   *sample `koanf:"tls"`
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const full = `
name: a
limit: 3
ratio: 0.5
on: true
wait: 250ms
level: low
peers: [x, y]
labels: {any: thing}
listen:
  grpc: 127.0.0.1:1
gates:
  - store: postgres://u:secret@h/db
    max: 7
  - store: second
`

func TestLoadLayersFileEnvironmentFlags(t *testing.T) {
	got := sample{Name: "default", Listen: sampleListen{HTTP: "kept", GRPC: "default"}}
	err := Load(&got, Source{
		File: write(t, full),
		Environ: []string{
			"LYCHGATE_LIMIT=4", "LYCHGATE_WAIT=2s", "LYCHGATE_PEERS=p, q", "LYCHGATE_GATES__1__MAX=9",
			"LYCHGATE_GATES__2__STORE=third", "LYCHGATE_LISTEN__GRPC=env", "PATH=/bin",
			"LYCHGATE_ADDR=127.0.0.1:7600", "LYCHGATE_PORT=tcp://10.0.0.1:7600", "LYCHGATE_SERVICE_HOST=10.0.0.1",
			"LYCHGATE_PORT_7600_TCP_ADDR=10.0.0.1", "LYCHGATE_SERVICE_PORT_GRPC=7600",
		},
		Flags: map[string]string{"limit": "5", "gates[0].max": "8", "level": "high", "on": "false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := sample{
		Name: "a", Limit: 5, Ratio: 0.5, Wait: 2 * time.Second, Level: 2,
		Peers: []string{"p", "q"}, Labels: map[string]string{"any": "thing"},
		Listen: sampleListen{GRPC: "env", HTTP: "kept"},
		Gates: []sampleGate{
			{Store: "postgres://u:secret@h/db", Max: 8},
			{Store: "second", Max: 9},
			{Store: "third"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLoadNothingKeepsDefaults(t *testing.T) {
	for name, file := range map[string]string{"no file": "", "empty file": write(t, ""), "comment": write(t, "# nothing\n"), "bare key": write(t, "listen:\nname:\n")} {
		got := sample{Name: "default", Listen: sampleListen{GRPC: "default"}}
		if err := Load(&got, Source{File: file}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got.Name != "default" || got.Listen.GRPC != "default" {
			t.Errorf("%s: defaults are gone: %+v", name, got)
		}
	}
}

func TestLoadRefusesFile(t *testing.T) {
	for content, want := range map[string]string{
		"nam: a":                         `c.yaml:1: nam: unknown key, did you mean "name"?`,
		"name: a\nzzzzzz: 1":             `c.yaml:2: zzzzzz: unknown key`,
		"listen:\n  grcp: x":             `c.yaml:2: listen.grcp: unknown key, did you mean "grpc"?`,
		"gates:\n- store: x\n- stor: y":  `c.yaml:3: gates[1].stor: unknown key, did you mean "store"?`,
		"limit: many":                    `c.yaml:1: limit: want a whole number, have "many"`,
		"limit: 99999999999999999999":    `c.yaml:1: limit: want a whole number`,
		"gates: [{max: 70000}]":          `c.yaml:1: gates[0].max: want a whole number, not negative, have "70000"`,
		"wait: 30":                       `c.yaml:1: wait: want a duration with its unit, such as 250ms or 5s, have "30"`,
		"on: maybe":                      `c.yaml:1: on: want true or false, have "maybe"`,
		"ratio: x":                       `c.yaml:1: ratio: want a number, have "x"`,
		"level: middle":                  `c.yaml:1: level: is "middle"; known are low and high`,
		"peers: one":                     `c.yaml:1: peers: want a list, have "one"`,
		"peers: [{a: b}]":                `c.yaml:1: peers[0]: want one value, have keys with values`,
		"listen: here":                   `c.yaml:1: listen: want keys with values, have "here"`,
		"listen: [a]":                    `c.yaml:1: listen: want keys with values, have a list`,
		"name: [a]":                      `c.yaml:1: name: want one value, have a list`,
		"name: a\nname: b":               `c.yaml:2: name: stands here and at line 1`,
		"name: a\n---\nname: b":          `c.yaml: has more than one document`,
		"- a":                            `c.yaml:1: want keys with values, have a list`,
		"name: [a":                       `c.yaml: yaml: line 1`,
		"base: &b {grpc: x}\nlisten: *b": `c.yaml:1: base: unknown key`,
		"listen: {<<: {gprc: x}}":        `c.yaml:1: listen.gprc: unknown key, did you mean "grpc"?`,
	} {
		err := Load(new(sample), Source{File: write(t, content)})
		wantError(t, content, err, want)
	}
}

// All that is wrong is said at once, each at its line, whichever source it came from.
func TestLoadReportsAllMistakes(t *testing.T) {
	err := Load(new(sample), Source{
		File:    write(t, "nam: a\nlisten: {grcp: x}\nlimit: many\n"),
		Environ: []string{EnvPrefix + "NO_SUCH_KEY=1"},
		Flags:   map[string]string{"no.such": "1"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{":1: nam: ", ":2: listen.grcp: ", ":3: limit: ", "NO_SUCH_KEY", "no.such"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said:\n%v", want, err)
		}
	}
}

func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), want) {
		t.Errorf("%q: got error %v, want an *Error with %q", what, err, want)
	}
}

func TestLoadRefusesEnvironment(t *testing.T) {
	for entry, want := range map[string]string{
		"LYCHGATE_NAEM=x":             `LYCHGATE_NAEM: naem: unknown key, did you mean "name"?`,
		"LYCHGATE_LIMIT=x":            `LYCHGATE_LIMIT: limit: want a whole number, have "x"`,
		"LYCHGATE_LISTEN=x":           `LYCHGATE_LISTEN: listen: want keys with values, have one value`,
		"LYCHGATE_LISTEN__GRCP=x":     `did you mean "grpc"?`,
		"LYCHGATE_GATES__3__STORE=x":  `gates[3].store: the list has 0 elements`,
		"LYCHGATE_GATES__STORE=x":     `a list: name an element by its number before "store"`,
		"LYCHGATE_NAME__0=x":          `not a list`,
		"LYCHGATE_NAME__SUB=x":        `has no keys below it`,
		"LYCHGATE_GATES__0__TLS__X=x": `gates[0].tls.x: unknown key`,
	} {
		wantError(t, entry, Load(new(sample), Source{Environ: []string{entry}}), want)
	}
}

func TestLoadRefusesFlags(t *testing.T) {
	err := Load(new(sample), Source{Flags: map[string]string{"wait": "soon"}, FlagOf: map[string]string{"wait": "wait"}})
	wantError(t, "wait", err, `--wait: wait: want a duration`)
	for _, key := range []string{"", ".", "a..b", "[0]"} {
		wantError(t, key, Load(new(sample), Source{Flags: map[string]string{key: "x"}}), "not a key")
	}
}

func TestLoadMissingFile(t *testing.T) {
	err := Load(new(sample), Source{File: "/nowhere/c.yaml"})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/c.yaml") {
		t.Errorf("got %v, want one that names the file", err)
	}
}

func TestShowHidesSecrets(t *testing.T) {
	c := sample{
		Name: "a", Wait: 5 * time.Second, Level: 2, Secret: "hunter2", Peers: []string{"http://127.0.0.1:7601"},
		Gates: []sampleGate{
			{Store: "postgres://u:hunter2@h:5432/db?sslmode=off"},
			{Store: "postgres://u:hunt%zzer2@/x@h/db"},
			{Store: "host=h user=u password='hunter2 \\' x' dbname=d"},
			{Store: "host=h password = hunter2 dbname=d"},
			{Store: "postgres://h/db?user=u&password=hunter2&x=y"},
		},
	}
	out, err := Show(c)
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	if strings.Contains(text, "hunt") || strings.Count(text, Hidden) != 6 {
		t.Errorf("secrets in:\n%s", text)
	}
	for _, want := range []string{"name: a\n", "wait: 5s\n", "level: high\n", "u:********@h:5432/db?sslmode=off", "- http://127.0.0.1:7601", "dbname=d", "x=y", "limit: 0\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Index(text, "name:") > strings.Index(text, "limit:") {
		t.Errorf("keys are not in the order of the struct:\n%s", text)
	}
	var back sample
	if err := Load(&back, Source{File: write(t, text)}); err != nil {
		t.Errorf("what is shown does not load: %v", err)
	}
}

func TestTreeIsForJSON(t *testing.T) {
	tree, err := Tree(sample{Limit: 3, On: true, Wait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if tree["limit"] != 3 || tree["on"] != true || tree["wait"] != "1s" {
		t.Errorf("got %v", tree)
	}
}

func TestDetect(t *testing.T) {
	kinds := []Kind{{"one", sampleListen{}}, {"two", sampleGate{}}}
	for content, want := range map[string]string{"grpc: x": "one", "store: x\nmax: 1\ngrpc: x": "two", "http: x\nunknown: y": "one"} {
		if got, err := Detect(write(t, content), kinds); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", content, got, err, want)
		}
	}
	for _, content := range []string{"", "zzz: 1", "store: x\ngrpc: y", "[a]"} {
		if got, err := Detect(write(t, content), kinds); err == nil {
			t.Errorf("%q: got %q, want an error", content, got)
		}
	}
}
