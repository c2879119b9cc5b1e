package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

const (
	magic        = "owjrnl1\n"
	recordHeader = 8
	bodyHeader   = 19
	// maxBody bounds the memory that a reader allocates for a length in a damaged log.
	maxBody = bodyHeader + runner.MaxLine
)

const (
	kindFrame = 1
	kindMark  = 2
)

// Mark is a state of a run.
type Mark byte

// The marks, in the order in which they may follow each other.
const (
	Delivering Mark = 1 // the prompt is about to be written to the agent
	Delivered  Mark = 2 // it has been written
	Cut        Mark = 3 // final: the runner died while the run was open
	Closed     Mark = 4 // final: the next run has begun
	Sealed     Mark = 5 // final: the sandbox was sealed
)

// Final reports whether no record may follow the mark.
func (m Mark) Final() bool { return m >= Cut }

var streams = [...]runner.Stream{1: runner.Stdout, 2: runner.Stderr, 3: runner.Exit, 4: runner.Call}

const flagTruncated = 1

var errRecord = errors.New("record is damaged")

// record is the decoded body of a record: a frame, or a mark.
type record struct {
	frame runner.Frame
	mark  Mark
}

func appendFrame(b []byte, f runner.Frame) []byte {
	var stream, flags byte
	for i, s := range streams {
		if s == f.Stream {
			stream = byte(i)
		}
	}
	if f.Truncated {
		flags = flagTruncated
	}
	return appendRecord(b, kindFrame, stream, flags, f.At, f.No, f.Data)
}

func appendMark(b []byte, m Mark, at time.Time) []byte {
	return appendRecord(b, kindMark, byte(m), 0, at, 0, nil)
}

func appendRecord(b []byte, kind, what, flags byte, at time.Time, no int64, data []byte) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(bodyHeader+len(data)))
	b = append(b, 0, 0, 0, 0, kind, what, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixNano()))
	b = binary.BigEndian.AppendUint64(b, uint64(no))
	b = append(b, data...)
	binary.BigEndian.PutUint32(b[start+4:], checksum(b[start+recordHeader:]))
	return b
}

// checksum returns the CRC-32C of a body. The table is made at the first call: most processes of the program need none.
func checksum(body []byte) uint32 { return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) }

// bodySize decodes the header of a record.
func bodySize(header []byte) (size int, sum uint32, err error) {
	n := binary.BigEndian.Uint32(header)
	if n < bodyHeader || n > maxBody {
		return 0, 0, errRecord
	}
	return int(n), binary.BigEndian.Uint32(header[4:]), nil
}

// parseBody decodes a body, which the returned frame retains.
func parseBody(body []byte, sum uint32) (record, error) {
	if checksum(body) != sum {
		return record{}, errRecord
	}
	at := time.Unix(0, int64(binary.BigEndian.Uint64(body[3:]))).UTC()
	no := int64(binary.BigEndian.Uint64(body[11:]))
	switch what := body[1]; body[0] {
	case kindFrame:
		if what == 0 || int(what) >= len(streams) {
			return record{}, errRecord
		}
		return record{frame: runner.Frame{
			No: no, Stream: streams[what], At: at, Data: body[bodyHeader:], Truncated: body[2]&flagTruncated != 0,
		}}, nil
	case kindMark:
		if what < byte(Delivering) || what > byte(Sealed) {
			return record{}, errRecord
		}
		return record{mark: Mark(what)}, nil
	}
	return record{}, errRecord
}
