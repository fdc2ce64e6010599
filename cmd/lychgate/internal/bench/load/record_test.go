package load

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestRecordsAreReadAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records")
	want := []Record{{1, 2, 3, 4, 5, 6, 7}, {Worker: 1 << 31, Resource: 9, Token: 1<<53 - 1}}
	if err := WriteRecords(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadRecords(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if err := os.Truncate(path, 2*recordSize-1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRecords(path); err == nil {
		t.Error("a file that ends within a record was read")
	}
}
