package stage

import "testing"

func TestMemoryOfAProcess(t *testing.T) {
	text := []byte("Name:\tx\nVmRSS:\t   2048 kB\nRssAnon:\t   1024 kB\n")
	if got, err := field(text, "VmRSS:"); err != nil || got != 2<<20 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := field(text, "RssFile:"); err == nil {
		t.Error("a field that is not there was read")
	}
}
