package lossyfs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// mounted is a disk and its folder.
func mounted(t *testing.T, d *Disk) string {
	t.Helper()
	folder := t.TempDir()
	m, err := Mount(d, folder)
	if err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// left is what a cut at the end of the journal leaves, in a folder.
func left(t *testing.T, d *Disk, loss Loss, random *rand.Rand) string {
	t.Helper()
	r, folder := d.Replay(), t.TempDir()
	r.To(d.Len())
	if err := r.Cut(loss, random).Write(folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func syncFolder(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	check(t, f.Sync())
	check(t, f.Close())
}

// What a program has to sync, and what is left when it did not.
func TestWhatSurvives(t *testing.T) {
	create := func(t *testing.T, path, text string, sync bool) {
		t.Helper()
		f, err := os.Create(path)
		check(t, err)
		_, err = f.WriteString(text)
		check(t, err)
		if sync {
			check(t, f.Sync())
		}
		check(t, f.Close())
	}
	for name, test := range map[string]struct {
		steps func(t *testing.T, dir string)
		want  string // of the file "a"; "-" if it is not there
	}{
		"nothing is synced":            {func(t *testing.T, dir string) { create(t, filepath.Join(dir, "a"), "text", false) }, "-"},
		"the file is, its name is not": {func(t *testing.T, dir string) { create(t, filepath.Join(dir, "a"), "text", true) }, "-"},
		"the name is, the file is not": {func(t *testing.T, dir string) {
			create(t, filepath.Join(dir, "a"), "text", false)
			syncFolder(t, dir)
		}, ""},
		"both are": {func(t *testing.T, dir string) {
			create(t, filepath.Join(dir, "a"), "text", true)
			syncFolder(t, dir)
		}, "text"},
		"a rename is not": {func(t *testing.T, dir string) {
			create(t, filepath.Join(dir, "a"), "old", true)
			syncFolder(t, dir)
			create(t, filepath.Join(dir, "b"), "new", true)
			check(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")))
		}, "old"},
		"a rename is": {func(t *testing.T, dir string) {
			create(t, filepath.Join(dir, "a"), "old", true)
			create(t, filepath.Join(dir, "b"), "new", true)
			check(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")))
			syncFolder(t, dir)
		}, "new"},
		"a removal is not": {func(t *testing.T, dir string) {
			create(t, filepath.Join(dir, "a"), "text", true)
			syncFolder(t, dir)
			check(t, os.Remove(filepath.Join(dir, "a")))
		}, "text"},
		"a truncation is not": {func(t *testing.T, dir string) {
			create(t, filepath.Join(dir, "a"), "text", true)
			syncFolder(t, dir)
			check(t, os.Truncate(filepath.Join(dir, "a"), 1))
		}, "text"},
		"the folder above is not": {func(t *testing.T, dir string) {
			check(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
			create(t, filepath.Join(dir, "sub", "a"), "text", true)
			syncFolder(t, filepath.Join(dir, "sub"))
			check(t, os.Rename(filepath.Join(dir, "sub", "a"), filepath.Join(dir, "a")))
		}, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			d := New()
			test.steps(t, mounted(t, d))
			got := "-"
			text, err := os.ReadFile(filepath.Join(left(t, d, LossOfAll, nil), "a"))
			if err == nil {
				got = string(text)
			} else if !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
			if got != test.want {
				t.Errorf("a holds %q, want %q", got, test.want)
			}
		})
	}
}

// TestSameAsAnotherFileSystem makes the same random changes here and in an ordinary folder. Where nothing is lost both are the same, and
// where all that was not synced is lost, no file has a part of a write behind its last sync.
func TestSameAsAnotherFileSystem(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	d := New()
	here, there := mounted(t, d), t.TempDir()
	both := func(fn func(dir string) error) {
		a, b := fn(here), fn(there)
		if (a == nil) != (b == nil) {
			t.Fatalf("here: %v, there: %v", a, b)
		}
	}
	for range 600 {
		name, other := fmt.Sprintf("f%d", random.IntN(6)), fmt.Sprintf("f%d", random.IntN(6))
		data := bytes.Repeat([]byte{byte(random.UintN(255) + 1)}, random.IntN(3*block))
		off, sync := random.Int64N(4*block), random.IntN(3) == 0
		switch random.IntN(8) {
		case 0:
			both(func(dir string) error { return os.Remove(filepath.Join(dir, name)) })
		case 1:
			both(func(dir string) error { return os.Rename(filepath.Join(dir, name), filepath.Join(dir, other)) })
		case 2:
			both(func(dir string) error { return os.Truncate(filepath.Join(dir, name), off) })
		default:
			both(func(dir string) error { return writeAt(filepath.Join(dir, name), data, off, sync) })
		}
	}
	compare(t, here, there)
	compare(t, left(t, d, LossOfNone, nil), there)
}

// writeAt leaves no file open, or the disk could not be unmounted.
func writeAt(path string, data []byte, off int64, sync bool) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, off)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func compare(t *testing.T, a, b string) {
	t.Helper()
	read := func(dir string) map[string]string {
		files := make(map[string]string)
		entries, err := os.ReadDir(dir)
		check(t, err)
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			check(t, err)
			files[e.Name()] = string(text)
		}
		return files
	}
	in, want := read(a), read(b)
	if len(in) != len(want) || len(want) == 0 {
		t.Fatalf("%d files, want %d", len(in), len(want))
	}
	for name := range want {
		if in[name] != want[name] {
			t.Errorf("%s differs: %d and %d bytes", name, len(in[name]), len(want[name]))
		}
	}
}

// A write that was not synced may be there in parts, sector by sector, and the same draws leave the same.
func TestTornWrites(t *testing.T) {
	d := New()
	dir := mounted(t, d)
	check(t, writeAt(filepath.Join(dir, "a"), bytes.Repeat([]byte{1}, 8*sector), 0, true))
	syncFolder(t, dir)
	check(t, writeAt(filepath.Join(dir, "a"), bytes.Repeat([]byte{2}, 8*sector), 0, false))
	kinds := make(map[string]bool)
	for seed := range uint64(200) {
		var texts [2]string
		for i := range texts {
			text, err := os.ReadFile(filepath.Join(left(t, d, LossOfSome, rand.New(rand.NewPCG(seed, 0))), "a"))
			check(t, err)
			texts[i] = string(text)
		}
		if texts[0] != texts[1] {
			t.Fatalf("seed %d leaves two things", seed)
		}
		kinds[texts[0]] = true
		for at := 0; at < len(texts[0]); at += sector {
			if s := texts[0][at : at+sector]; s != string(bytes.Repeat([]byte{s[0]}, sector)) {
				t.Fatalf("seed %d tears a sector", seed)
			}
		}
	}
	if len(kinds) < 20 {
		t.Errorf("200 draws left only %d kinds of content", len(kinds))
	}
}

// After a cut everything fails, and an image is a disk again.
func TestCut(t *testing.T) {
	d := New()
	dir := mounted(t, d)
	check(t, writeAt(filepath.Join(dir, "a"), []byte("text"), 0, true))
	syncFolder(t, dir)
	at := d.Cut()
	if err := writeAt(filepath.Join(dir, "a"), []byte("more"), 0, true); !errors.Is(err, syscall.EIO) {
		t.Errorf("after the cut a write says %v", err)
	}
	r := d.Replay()
	r.To(at)
	again := mounted(t, r.Cut(LossOfAll, nil).Disk())
	text, err := os.ReadFile(filepath.Join(again, "a"))
	if err != nil || string(text) != "text" {
		t.Errorf("the next disk has %q, %v", text, err)
	}
}

// Faults fail what they are about, and nothing of it is done.
func TestFaults(t *testing.T) {
	d := New()
	dir := mounted(t, d)
	path := filepath.Join(dir, "a")
	check(t, writeAt(path, []byte("text"), 0, true))
	d.Fail(func(c Change) syscall.Errno {
		if c.Sync {
			return syscall.EIO
		}
		return 0
	})
	if err := writeAt(path, []byte("more"), 0, true); !errors.Is(err, syscall.EIO) {
		t.Errorf("a sync that fails says %v", err)
	}
	d.Fail(func(c Change) syscall.Errno { return syscall.ENOSPC })
	if err := writeAt(path, []byte("none"), 0, false); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk says %v", err)
	}
	d.Fail(nil)
	if text, err := os.ReadFile(path); err != nil || string(text) != "more" {
		t.Errorf("there is %q, %v", text, err)
	}
}

// A flipped bit changes one bit of what was written.
func TestFlip(t *testing.T) {
	d := New()
	dir := mounted(t, d)
	check(t, writeAt(filepath.Join(dir, "a"), make([]byte, 100), block, true))
	syncFolder(t, dir)
	r := d.Replay()
	r.To(d.Len())
	image, folder := r.Cut(LossOfAll, nil), t.TempDir()
	if where := image.Flip(rand.New(rand.NewPCG(3, 4))); where == "" {
		t.Fatal("there is nothing to flip")
	}
	check(t, image.Write(folder))
	text, err := os.ReadFile(filepath.Join(folder, "a"))
	check(t, err)
	ones := 0
	for _, b := range text {
		for ; b > 0; b &= b - 1 {
			ones++
		}
	}
	if ones != 1 {
		t.Errorf("%d bits are flipped", ones)
	}
}
