package durablestream

import (
	"bytes"
	"encoding/base64"
	"mime"
	"strings"
)

// encoding is the format of messages, which depends on the content type of the stream.
type encoding int

const (
	encodeJSON   encoding = iota // elements of an array
	encodeText                   // one after the other
	encodeBinary                 // one after the other; base64 in events
)

func encodingOf(contentType string) encoding {
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return encodeBinary
	case media == "application/json":
		return encodeJSON
	case strings.HasPrefix(media, "text/"):
		return encodeText
	}
	return encodeBinary
}

// body collects the messages of one response.
type body struct {
	encoding encoding
	buf      []byte
	count    int
}

// add copies messages.
func (b *body) add(messages [][]byte) {
	for _, m := range messages {
		if b.encoding == encodeJSON {
			if b.count == 0 {
				b.buf = append(b.buf, '[')
			} else {
				b.buf = append(b.buf, ",\n"...)
			}
		}
		b.buf = append(b.buf, m...)
		b.count++
	}
}

// bytes completes the body.
func (b *body) bytes() []byte {
	if b.encoding != encodeJSON {
		return b.buf
	}
	if b.count == 0 {
		return []byte("[]")
	}
	return append(b.buf, ']')
}

// appendEvent appends a server-sent event. Each line of its data has its own field, so that no data
// can begin another event. The conformance suite expects no space after the colon; a line that
// begins with a space needs another one in front of it.
func appendEvent(dst []byte, name string, data []byte) []byte {
	dst = append(dst, "event: "...)
	dst = append(dst, name...)
	for more := true; more; {
		line := data
		end := bytes.IndexAny(data, "\r\n")
		if more = end >= 0; more {
			line = data[:end]
			if bytes.HasPrefix(data[end:], []byte("\r\n")) {
				end++
			}
			data = data[end+1:]
		}
		dst = append(dst, "\ndata:"...)
		if bytes.HasPrefix(line, []byte(" ")) {
			dst = append(dst, ' ')
		}
		dst = append(dst, line...)
	}
	return append(dst, "\n\n"...)
}

// eventData is the data of an event with messages.
func (b *body) eventData() []byte {
	if b.encoding == encodeBinary {
		return base64.StdEncoding.AppendEncode(nil, b.buf)
	}
	return b.bytes()
}
