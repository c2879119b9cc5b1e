package runner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

const (
	headerSize  = 5
	frameHeader = 18
	// eager bounds the memory that is allocated before the bytes have arrived, unless the reader
	// has reserved the memory.
	eager = 1 << 20
)

var streamBytes = map[Stream]byte{Stdout: 1, Stderr: 2, Exit: 3, Call: 4}

func streamOf(b byte) (Stream, bool) {
	switch b {
	case 1:
		return Stdout, true
	case 2:
		return Stderr, true
	case 3:
		return Exit, true
	case 4:
		return Call, true
	}
	return "", false
}

const flagTruncated = 1

// WriteMessage writes one message. After an error, the stream is unusable.
func WriteMessage(w io.Writer, m Message) error {
	head, body, err := encode(m)
	if err != nil {
		return err
	}
	n := len(head) - headerSize + len(body)
	if n > maxMessage {
		return fmt.Errorf("message of %d bytes exceeds the bound of %d", n, maxMessage)
	}
	head[0] = byte(m.messageType())
	binary.BigEndian.PutUint32(head[1:], uint32(n))
	if _, err := w.Write(head); err != nil {
		return err
	}
	if len(body) == 0 {
		return nil
	}
	_, err = w.Write(body)
	return err
}

// encode returns a header with room for type and length, and the payload, separately so that bulk
// data is not copied.
func encode(m Message) (head, body []byte, err error) {
	head = make([]byte, headerSize, 64)
	switch m := m.(type) {
	case *Input:
		return head, m.Data, nil
	case *Data:
		return head, m.Bytes, nil
	case *Result:
		return head, m.Data, nil
	case *Frame:
		stream, ok := streamBytes[m.Stream]
		if !ok {
			return nil, nil, fmt.Errorf("no stream is named %q", m.Stream)
		}
		head = binary.BigEndian.AppendUint64(head, uint64(m.No))
		head = binary.BigEndian.AppendUint64(head, uint64(m.At.UnixNano()))
		var flags byte
		if m.Truncated {
			flags |= flagTruncated
		}
		return append(head, stream, flags), m.Data, nil
	case *FileChanged:
		h, err := m.encode()
		return append(head, h...), m.Data, err
	case *Segment:
		if len(m.Path) > 0xffff {
			return nil, nil, fmt.Errorf("path of %d bytes is too long", len(m.Path))
		}
		head = binary.BigEndian.AppendUint16(head, uint16(len(m.Path)))
		head = append(head, m.Path...)
		head = binary.BigEndian.AppendUint64(head, uint64(m.Version))
		head = binary.BigEndian.AppendUint64(head, uint64(m.Offset))
		return head, m.Data, nil
	default:
		body, err = json.Marshal(m)
		return head, body, err
	}
}

// ReadMessage reads one message. io.EOF means that the stream ended between two messages.
func ReadMessage(r io.Reader) (Message, error) {
	m, _, err := readMessage(r, func(_ messageType, bytes int64) (bool, error) { return bytes <= eager, nil })
	return m, err
}

// linkBound returns the maximum size of a message on a link, by type.
func linkBound(t messageType) int64 {
	switch t {
	case typeFrame:
		return MaxLinkMessage
	case typeSegment:
		return MaxSegment + maxHeader
	case typeChanged:
		return workspacefile.MaxBytes + maxHeader
	case typeDiff:
		return maxDiff
	case typeResult:
		return maxResult
	default:
		return maxJSON
	}
}

// readMessage reads one message after admit has returned, and returns its size. admit reports
// whether the memory may be allocated before the bytes have arrived.
func readMessage(r io.Reader, admit func(t messageType, bytes int64) (allocate bool, err error)) (Message, int64, error) {
	t, payload, err := readRaw(r, admit)
	if err != nil {
		return nil, 0, err
	}
	m, err := decode(t, payload)
	return m, int64(len(payload)), err
}

func readRaw(r io.Reader, admit func(t messageType, bytes int64) (bool, error)) (messageType, []byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxMessage {
		return 0, nil, fmt.Errorf("message of %d bytes exceeds the bound of %d", n, maxMessage)
	}
	allocate, err := admit(messageType(head[0]), int64(n))
	if err != nil {
		return 0, nil, err
	}
	var payload []byte
	if allocate {
		payload = make([]byte, n)
		_, err = io.ReadFull(r, payload)
	} else {
		var b bytes.Buffer
		_, err = io.CopyN(&b, r, int64(n))
		payload = b.Bytes()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return messageType(head[0]), payload, err
}

func decode(t messageType, p []byte) (Message, error) {
	var m Message
	switch t {
	case typeInput:
		return &Input{Data: p}, nil
	case typeData:
		return &Data{Bytes: p}, nil
	case typeResult:
		if !json.Valid(p) {
			return nil, errors.New("result is not JSON")
		}
		return &Result{Data: p}, nil
	case typeFrame:
		return decodeFrame(p)
	case typeSegment:
		return decodeSegment(p)
	case typeChanged:
		return decodeFile(p)
	case typeHello:
		m = &Hello{}
	case typeStart:
		m = &Start{}
	case typeInterrupt:
		m = &Interrupt{}
	case typeSteer:
		m = &Steer{}
	case typeTaken:
		m = &Taken{}
	case typeSettle:
		m = &Settle{}
	case typeFlush:
		m = &Flush{}
	case typeAnswer:
		m = &CallAnswer{}
	case typeDetach:
		m = &Detach{}
	case typeDetached:
		m = &Detached{}
	case typeDirect:
		m = &Direct{}
	case typeQuiet:
		m = &Quiet{}
	case typeNoDiff:
		m = &NoDiff{}
	case typeCommand:
		m = &Command{}
	case typeKnown:
		m = &FilesKnown{}
	case typeBegun:
		m = &FilesBegun{}
	case typeBounded:
		m = &FilesBounded{}
	case typeSurvey:
		m = &Survey{}
	case typeDiff:
		m = &Diff{}
	case typeWelcome:
		m = &Welcome{}
	case typeDelivery:
		m = &DeliveryChanged{}
	case typeFlushed:
		m = &Flushed{}
	case typeAlive:
		m = &Alive{}
	case typeDisplaced:
		m = &Displaced{}
	case typeError:
		m = &Error{}
	case typeFile:
		m = &File{}
	case typeEnd:
		m = &End{}
	default:
		return nil, fmt.Errorf("no message has type %d", t)
	}
	if err := json.Unmarshal(p, m); err != nil {
		return nil, fmt.Errorf("decode %T: %w", m, err)
	}
	return m, nil
}

func decodeFrame(p []byte) (Message, error) {
	if len(p) < frameHeader {
		return nil, fmt.Errorf("frame of %d bytes is too short", len(p))
	}
	stream, ok := streamOf(p[16])
	if !ok {
		return nil, fmt.Errorf("frame of unknown stream %d", p[16])
	}
	return &Frame{
		No:        int64(binary.BigEndian.Uint64(p)),
		At:        time.Unix(0, int64(binary.BigEndian.Uint64(p[8:]))).UTC(),
		Stream:    stream,
		Truncated: p[17]&flagTruncated != 0,
		Data:      p[frameHeader:],
	}, nil
}

func decodeSegment(p []byte) (Message, error) {
	if len(p) < 2 {
		return nil, fmt.Errorf("segment of %d bytes is too short", len(p))
	}
	n := int(binary.BigEndian.Uint16(p))
	p = p[2:]
	if len(p) < n+16 {
		return nil, fmt.Errorf("segment with a path of %d bytes is too short", n)
	}
	return &Segment{
		Path:    string(p[:n]),
		Version: int64(binary.BigEndian.Uint64(p[n:])),
		Offset:  int64(binary.BigEndian.Uint64(p[n+8:])),
		Data:    p[n+16:],
	}, nil
}
