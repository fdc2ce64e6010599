package main

import (
	"bufio"
	"encoding/binary"
	"os"
)

// record is one lock that was taken and given back. Instants are Unix nanoseconds.
type record struct {
	worker, resource uint32
	asked            int64
	granted          int64
	released         int64 // when the release was sent; 0: never
	answered         int64 // when it was answered; 0: never, or not so
	token            uint64
}

// write writes the records as load.ReadRecords reads them.
func write(path string, records []record) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriter(f)
	var b []byte
	for _, r := range records {
		b = binary.LittleEndian.AppendUint32(b[:0], r.worker)
		b = binary.LittleEndian.AppendUint32(b, r.resource)
		for _, v := range []uint64{uint64(r.asked), uint64(r.granted), uint64(r.released), uint64(r.answered), r.token} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return f.Close()
}
