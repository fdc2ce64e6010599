package load

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Record is one lock that was taken and given back, as its holder saw it. Instants are those of Now.
type Record struct {
	Worker, Resource uint32 // numbers
	Asked            int64  // when the acquire was to be sent
	Granted          int64  // when its answer was there
	Released         int64  // when the release was sent; 0: never
	Answered         int64  // when it was answered; 0: never, or with an error
	Token            uint64
}

const recordSize = 48

// WriteRecords writes a file that ReadRecords reads.
func WriteRecords(path string, records []Record) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	var b []byte
	for _, r := range records {
		b = r.append(b[:0])
		if _, err := out.Write(b); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(out.Flush(), f.Close())
}

func (r Record) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Worker)
	b = binary.LittleEndian.AppendUint32(b, r.Resource)
	for _, v := range [...]uint64{uint64(r.Asked), uint64(r.Granted), uint64(r.Released), uint64(r.Answered), r.Token} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// ReadRecords reads a file of records. One that ends within a record is an error.
func ReadRecords(path string) ([]Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	var records []Record
	b := make([]byte, recordSize)
	for {
		_, err := io.ReadFull(in, b)
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: record %d: %w", path, len(records), err)
		}
		u := binary.LittleEndian.Uint64
		records = append(records, Record{
			Worker: binary.LittleEndian.Uint32(b), Resource: binary.LittleEndian.Uint32(b[4:]),
			Asked: int64(u(b[8:])), Granted: int64(u(b[16:])), Released: int64(u(b[24:])), Answered: int64(u(b[32:])), Token: u(b[40:]),
		})
	}
}
