package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of values. A line with deeper nesting is invalid.
const maxDepth = 512

// Fields calls f with the key and the raw value of each member of a JSON object, in order. It
// reports whether raw is one valid object and nothing else. Keys are passed unchanged: agents use
// no keys with escapes.
func Fields(raw []byte, f func(key, value []byte)) bool {
	i := space(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return false
	}
	i = space(raw, i+1)
	if i < len(raw) && raw[i] == '}' {
		return space(raw, i+1) == len(raw)
	}
	for {
		if i >= len(raw) || raw[i] != '"' {
			return false
		}
		end := skipString(raw, i)
		if end < 0 {
			return false
		}
		key := raw[i+1 : end-1]
		i = space(raw, end)
		if i >= len(raw) || raw[i] != ':' {
			return false
		}
		i = space(raw, i+1)
		end = skipValue(raw, i, 1)
		if end < 0 {
			return false
		}
		f(key, raw[i:end])
		i = space(raw, end)
		if i >= len(raw) {
			return false
		}
		switch raw[i] {
		case ',':
			i = space(raw, i+1)
		case '}':
			return space(raw, i+1) == len(raw)
		default:
			return false
		}
	}
}

// Elements calls f with each raw element of a JSON array and reports whether raw is one.
func Elements(raw []byte, f func(value []byte)) bool {
	i := space(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return false
	}
	i = space(raw, i+1)
	if i < len(raw) && raw[i] == ']' {
		return space(raw, i+1) == len(raw)
	}
	for {
		end := skipValue(raw, i, 1)
		if end < 0 {
			return false
		}
		f(raw[i:end])
		i = space(raw, end)
		if i >= len(raw) {
			return false
		}
		switch raw[i] {
		case ',':
			i = space(raw, i+1)
		case ']':
			return space(raw, i+1) == len(raw)
		default:
			return false
		}
	}
}

// space returns the first position at or after i that is not white space.
func space(d []byte, i int) int {
	for i < len(d) && (d[i] == ' ' || d[i] == '\t' || d[i] == '\r' || d[i] == '\n') {
		i++
	}
	return i
}

// skipValue returns the position after the value that begins at i, or -1 if no valid value begins
// there.
func skipValue(d []byte, i, depth int) int {
	if i >= len(d) || depth > maxDepth {
		return -1
	}
	switch c := d[i]; c {
	case '"':
		return skipString(d, i)
	case '{', '[':
		return skipNested(d, i, depth)
	case 't':
		return skipWord(d, i, "true")
	case 'f':
		return skipWord(d, i, "false")
	case 'n':
		return skipWord(d, i, "null")
	default:
		return skipNumber(d, i)
	}
}

// skipNested skips an object or an array.
func skipNested(d []byte, i, depth int) int {
	object, last := d[i] == '{', byte(']')
	if object {
		last = '}'
	}
	i = space(d, i+1)
	if i < len(d) && d[i] == last {
		return i + 1
	}
	for {
		if object {
			if i >= len(d) || d[i] != '"' {
				return -1
			}
			if i = skipString(d, i); i < 0 {
				return -1
			}
			if i = space(d, i); i >= len(d) || d[i] != ':' {
				return -1
			}
			i = space(d, i+1)
		}
		if i = skipValue(d, i, depth+1); i < 0 {
			return -1
		}
		i = space(d, i)
		if i >= len(d) {
			return -1
		}
		switch d[i] {
		case ',':
			i = space(d, i+1)
		case last:
			return i + 1
		default:
			return -1
		}
	}
}

func skipWord(d []byte, i int, word string) int {
	if len(d)-i < len(word) || string(d[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func skipNumber(d []byte, i int) int {
	if i < len(d) && d[i] == '-' {
		i++
	}
	first := i
	i = digits(d, i)
	if i == first || (d[first] == '0' && i > first+1) {
		return -1
	}
	if i < len(d) && d[i] == '.' {
		from := i + 1
		if i = digits(d, from); i == from {
			return -1
		}
	}
	if i < len(d) && (d[i] == 'e' || d[i] == 'E') {
		i++
		if i < len(d) && (d[i] == '+' || d[i] == '-') {
			i++
		}
		from := i
		if i = digits(d, from); i == from {
			return -1
		}
	}
	return i
}

func digits(d []byte, i int) int {
	for i < len(d) && d[i] >= '0' && d[i] <= '9' {
		i++
	}
	return i
}

// skipString returns the position after the string whose quote is at i, or -1. It searches eight
// bytes at a time for a quote, a backslash or a control character.
func skipString(d []byte, i int) int {
	const low, high = 0x0101010101010101, 0x8080808080808080
	i++
	for {
		for len(d)-i >= 8 {
			x := binary.LittleEndian.Uint64(d[i:])
			quote, slash := x^(low*'"'), x^(low*'\\')
			// The lowest set bit is correct; those above it may not be.
			found := ((x - low*0x20) &^ x) | ((quote - low) &^ quote) | ((slash - low) &^ slash)
			if found &= high; found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
			i += 8
		}
		if i >= len(d) {
			return -1
		}
		switch c := d[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			if i = skipEscape(d, i); i < 0 {
				return -1
			}
		case c < 0x20:
			return -1
		default:
			i++
		}
	}
}

func skipEscape(d []byte, i int) int {
	if i+1 >= len(d) {
		return -1
	}
	switch d[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		if _, ok := hex4(d, i+2); ok {
			return i + 6
		}
	}
	return -1
}

func hex4(d []byte, i int) (rune, bool) {
	if len(d)-i < 4 {
		return 0, false
	}
	var r rune
	for _, c := range d[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// Text decodes the string in raw. For any other value it returns the empty string. Raw has been
// checked by Fields or Elements.
func Text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			n = len(raw)
		}
		out = appendValid(out, raw[:n])
		if raw = raw[n:]; len(raw) == 0 {
			break
		}
		var size int
		out, size = appendEscape(out, raw)
		raw = raw[size:]
	}
	return string(out)
}

// appendValid appends b with U+FFFD in place of each invalid byte, as encoding/json does.
func appendValid(out, b []byte) []byte {
	if utf8.Valid(b) {
		return append(out, b...)
	}
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, r)
		b = b[size:]
	}
	return out
}

// appendEscape appends the character of the escape at the start of raw and returns the length of
// the escape.
func appendEscape(out, raw []byte) ([]byte, int) {
	switch raw[1] {
	case 'b':
		return append(out, '\b'), 2
	case 'f':
		return append(out, '\f'), 2
	case 'n':
		return append(out, '\n'), 2
	case 'r':
		return append(out, '\r'), 2
	case 't':
		return append(out, '\t'), 2
	case 'u':
		r, _ := hex4(raw, 2)
		if utf16.IsSurrogate(r) {
			if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
				low, _ := hex4(raw, 8)
				if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
					return utf8.AppendRune(out, both), 12
				}
			}
			r = utf8.RuneError
		}
		return utf8.AppendRune(out, r), 6
	}
	return append(out, raw[1]), 2
}

// Is reports whether raw is the string word, which has no escapes.
func Is(raw []byte, word string) bool {
	return len(raw) == len(word)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == word
}

// IsTrue reports whether raw is true.
func IsTrue(raw []byte) bool { return string(raw) == "true" }

// Field returns the raw value of one member of an object, or nil.
func Field(raw []byte, name string) []byte {
	var found []byte
	Fields(raw, func(key, value []byte) {
		if string(key) == name {
			found = value
		}
	})
	return found
}

// Clone copies raw JSON out of a frame or file, whose memory a block must not retain.
func Clone(raw []byte) []byte {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return bytes.Clone(raw)
}
