package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
)

const (
	// minMasked is the minimum length in bytes of a masked value: shorter ones may be ordinary
	// words.
	minMasked = 8
	// window is how many bytes the filter examines. No pattern is shorter.
	window = 8
	// filterBits is the size of the filter, as a power of two. It takes 32 KiB of memory.
	filterBits = 18
	// A value that is truncated at the end of a text is masked if at least 1/fragment of it is
	// present.
	fragment = 3 // a third
)

// Named is a secret with its name.
type Named struct {
	Name  string
	Value Value
}

// Masker replaces the values of secrets in text by [redacted NAME], also if they are encoded in
// base64 (standard or for URLs, at any alignment, with line breaks), in hexadecimal, for URLs, or
// as JSON strings. It cannot find values that were transformed in other ways. A nil Masker changes
// nothing. It is safe for concurrent use.
//
// The leftmost match is replaced, and among several the longest, so that the result is the same
// however a text is divided.
type Masker struct {
	filter [1 << filterBits / 64]uint64
	plain  patterns
	folded patterns // matched across line breaks
}

// patterns are sorted.
type patterns struct {
	text   []string
	label  []string
	within []int // the longest other pattern that is a prefix of this one, or -1
	fold   bool  // line breaks in the text are ignored
}

// NewMasker returns a masker for the values of secrets; nil if there is nothing to mask. Values
// shorter than minMasked are not masked, and neither are web URLs, except for a password in them.
func NewMasker(secrets []Named) *Masker {
	plain, folded := map[string]string{}, map[string]string{}
	add := func(to map[string]string, text, label string) {
		if have, ok := to[text]; len(text) >= window && (!ok || label < have) {
			to[text] = label
		}
	}
	for _, s := range secrets {
		label := "[redacted " + s.Name + "]"
		values := maskedValues(s.Name, s.Value.Reveal())
		for _, value := range values {
			for _, form := range textForms(value) {
				add(plain, form, label)
			}
		}
		if strings.HasPrefix(s.Name, GitName("")) { // as in an HTTP header
			values = append(values, s.Value.Reveal())
		}
		for _, value := range values {
			for _, core := range base64Cores(value) {
				add(folded, core, label)
			}
		}
	}
	if len(plain)+len(folded) == 0 {
		return nil
	}
	m := &Masker{plain: newPatterns(plain, false), folded: newPatterns(folded, true)}
	for _, p := range slices.Concat(m.plain.text, m.folded.text) {
		h := hash(binary.LittleEndian.Uint64([]byte(p[:window])))
		m.filter[h/64] |= 1 << (h % 64)
	}
	return m
}

// maskedValues returns the parts of a secret that must not be seen.
func maskedValues(name, value string) []string {
	value = strings.TrimSpace(value)
	var out []string
	add := func(v string) {
		if len(v) >= minMasked {
			out = append(out, v)
		}
		if strings.Contains(v, "-----BEGIN ") {
			out = append(out, keyLines(v)...)
		}
	}
	if u, err := url.Parse(value); err == nil && u.Host != "" {
		if u.User != nil {
			password, _ := u.User.Password()
			add(password)
		}
		switch strings.ToLower(u.Scheme) {
		case "http", "https", "ws", "wss":
			return out
		}
	}
	if strings.HasPrefix(name, GitName("")) {
		user, password, _ := strings.Cut(value, ":")
		isToken := password == "" || password == "x-oauth-basic" || len(user) >= 20 // some hosts accept a token as the user
		if isToken {
			add(user)
		}
		if password != "x-oauth-basic" {
			add(password)
		}
		return out
	}
	add(value)
	if strings.HasPrefix(value, "{") {
		var parsed any
		if json.Unmarshal([]byte(value), &parsed) == nil {
			credentials(parsed, false, add)
		}
	}
	return out
}

// minLine is the minimum length in bytes of a line of a key that is masked by itself.
const minLine = 16

// keyLines returns the lines of a key in PEM, because a text may show them with numbers, indented,
// or with other line breaks.
func keyLines(pem string) []string {
	var out []string
	for line := range strings.Lines(pem) {
		if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
			out = append(out, line)
		}
	}
	return out
}

// credentials finds the keys in a secret that is a document, such as a service account.
func credentials(v any, named bool, add func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			name = strings.ToLower(name)
			is := slices.ContainsFunc([]string{"key", "token", "secret", "password", "credential"}, func(word string) bool {
				return strings.Contains(name, word)
			})
			credentials(member, is, add)
		}
	case []any:
		for _, member := range v {
			credentials(member, named, add)
		}
	case string:
		if u, err := url.Parse(v); named && (err != nil || u.Host == "") {
			add(strings.TrimSpace(v))
		}
	}
}

// unreserved are the characters, in addition to letters and digits, that no percent-encoding
// changes.
const unreserved = "-_."

// safe lists further characters that some percent-encoding leaves unchanged.
var safe = []string{
	"~",                                 // RFC 3986, curl, and Go in queries
	"~/",                                // Python
	"*",                                 // Java, and HTML forms
	"",                                  // older programs
	"~!'()*",                            // encodeURIComponent
	"~!'()*;,/?:@&=+$#",                 // encodeURI
	"~$&+=:@",                           // Go in paths
	"~!$&'()*+,;=:@", "~!$&'()*+,;=:@/", // a path, by RFC 3986
}

// textForms returns the forms of a value: unchanged, hexadecimal, percent-encoded, for HTML, and in
// JSON strings, also nested ones.
func textForms(value string) []string {
	inHex := hex.EncodeToString([]byte(value))
	out := []string{value, inHex, strings.ToUpper(inHex)}
	every := make([]byte, 0, 3*len(value))
	for i := range len(inHex) / 2 {
		every = append(append(every, '%'), inHex[2*i:2*i+2]...)
	}
	out = append(out, string(every), strings.ToUpper(string(every)))
	for _, more := range safe {
		encoded := percentEncode(value, unreserved+more)
		for _, form := range []string{encoded, strings.ReplaceAll(encoded, "%20", "+")} {
			out = append(out, form, lowerEscapes(form))
		}
	}
	escaped := html.EscapeString(value)
	out = append(out, escaped, strings.NewReplacer("&#34;", "&quot;", "&#39;", "&apos;").Replace(escaped),
		strings.ReplaceAll(escaped, "&#34;", "&quot;"), strings.NewReplacer("&#34;", `"`, "&#39;", "'").Replace(escaped))
	for _, escapeHTML := range []bool{false, true} {
		inner := value
		for range nestedJSON {
			quoted := quote(inner, escapeHTML)
			inner = string(quoted[1 : len(quoted)-1])
			out = append(out, inner, strings.ReplaceAll(inner, "/", `\/`))
		}
	}
	return out
}

// nestedJSON is how deep a value may be nested in JSON strings to be found.
const nestedJSON = 3

// percentEncode encodes all bytes except letters, digits and those of keep as a percent sign and
// two digits.
func percentEncode(value, keep string) string {
	b := make([]byte, 0, len(value))
	for _, c := range []byte(value) {
		isAlphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if isAlphanumeric || strings.IndexByte(keep, c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', upperDigits[c>>4], upperDigits[c&15])
		}
	}
	return string(b)
}

const upperDigits = "0123456789ABCDEF"

// quote returns a JSON string.
func quote(text string, html bool) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if err := e.Encode(text); err != nil {
		panic(fmt.Sprintf("secret: encode a string: %v", err)) // a string can be encoded
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// lowerEscapes converts percent-encodings to lower case, as some programs write them.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

// base64Cores returns the base64 characters of a value that do not depend on adjacent bytes, for
// each alignment.
func base64Cores(value string) []string {
	var out []string
	if len(value) < minMasked {
		return out
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			encoded := encoding.EncodeToString(append(make([]byte, before), value...))
			out = append(out, encoded[(before*8+5)/6:(before+len(value))*8/6])
		}
	}
	return out
}

func newPatterns(labels map[string]string, fold bool) patterns {
	p := patterns{fold: fold}
	for text := range labels {
		p.text = append(p.text, text)
	}
	slices.Sort(p.text)
	for i, text := range p.text {
		p.label = append(p.label, labels[text])
		within := i - 1
		for within >= 0 && !strings.HasPrefix(text, p.text[within]) {
			within = p.within[within]
		}
		p.within = append(p.within, within)
	}
	return p
}

func hash(bytes uint64) uint64 { return bytes * 0x9e3779b97f4a7c15 >> (64 - filterBits) }

func (m *Masker) may(bytes uint64) bool {
	h := hash(bytes)
	return m.filter[h/64]&(1<<(h%64)) != 0
}

func isBreak(c byte) bool { return c == '\n' || c == '\r' }

// compare compares the beginning of text with a pattern. n is how much of text was compared: all of
// it if text is too short to decide, and then result is 0 and whole is false.
func (p *patterns) compare(text, pattern string) (result, n int, whole bool) {
	i, j := 0, 0
	for j < len(pattern) {
		if i == len(text) {
			return 0, i, false
		}
		c := text[i]
		if p.fold && isBreak(c) && i > 0 {
			i++
			continue
		}
		if c != pattern[j] {
			if c < pattern[j] {
				return -1, i, false
			}
			return 1, i, false
		}
		i++
		j++
	}
	return 0, i, true
}

// at looks for patterns at the beginning of text. It returns the longest match with the number of
// bytes of text that it takes, and the first pattern of which text is only a prefix; -1 for none.
func (p *patterns) at(text string) (match, n, partial int) {
	// The patterns before low are smaller than text. Those of which text is a prefix follow them.
	low, high := 0, len(p.text)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if result, _, whole := p.compare(text, p.text[middle]); result > 0 || whole {
			low = middle + 1
		} else {
			high = middle
		}
	}
	match, partial = -1, -1
	if low < len(p.text) {
		if result, _, whole := p.compare(text, p.text[low]); result == 0 && !whole {
			partial = low
		}
	}
	for i := low - 1; i >= 0; i = p.within[i] {
		if result, took, whole := p.compare(text, p.text[i]); result == 0 && whole {
			return i, took, partial
		}
	}
	return match, 0, partial
}

// fold8 returns the window at the beginning of text without line breaks; false if there are too few
// bytes.
func fold8(text string) (uint64, bool) {
	var w uint64
	n := 0
	for i := 0; i < len(text) && n < window; i++ {
		if c := text[i]; !isBreak(c) {
			w |= uint64(c) << (8 * n)
			n++
		}
	}
	return w, n == window
}

// found is the result of a search at one place of a text.
type found struct {
	match   bool
	n       int // number of bytes in the match
	label   string
	partial bool // text ends within a pattern
	cut     bool // and enough of it is present to be masked
	cutBy   string
}

// look searches at the beginning of text.
func (m *Masker) look(text string) found {
	var f found
	for _, p := range []*patterns{&m.plain, &m.folded} {
		if len(p.text) == 0 {
			continue
		}
		match, n, partial := p.at(text)
		if match >= 0 && n > f.n {
			f.match, f.n, f.label = true, n, p.label[match]
		}
		if partial >= 0 {
			f.partial = true
			if len(text) >= minMasked && len(text)*fragment >= len(p.text[partial]) {
				f.cut, f.cutBy = true, p.label[partial]
			}
		}
	}
	return f
}

// scan masks text into the builder and returns where the held-back suffix begins, which may be the
// beginning of a value if text continues. If end is set, nothing is held back. Without a match
// nothing is written, and changed is false.
func (m *Masker) scan(text string, end bool) (out strings.Builder, changed bool, held int) {
	written := 0
	replace := func(from, n int, label string) {
		out.WriteString(text[written:from])
		out.WriteString(label)
		written, changed = from+n, true
	}
	nextBreak := -1
	for i := 0; i < len(text); {
		if nextBreak < i {
			nextBreak = strings.IndexAny(text[i:], "\n\r")
			if nextBreak < 0 {
				nextBreak = len(text)
			} else {
				nextBreak += i
			}
		}
		// Up to here windows are complete and contain no line break.
		for last := min(nextBreak, len(text)) - window; i <= last; i++ {
			if m.may(load(text, i)) {
				break
			}
		}
		if i >= len(text) {
			break
		}
		if i+window > nextBreak {
			if w, whole := fold8(text[i:]); whole && !m.may(w) && (i+window > len(text) || !m.may(load(text, i))) {
				i++
				continue
			}
		}
		f := m.look(text[i:])
		switch {
		case f.partial && !end:
			if changed {
				out.WriteString(text[written:i])
			}
			return out, changed, i
		case f.match:
			replace(i, f.n, f.label)
			i += f.n
		case f.cut:
			replace(i, len(text)-i, f.cutBy)
			i = len(text)
		default:
			i++
		}
	}
	if changed {
		out.WriteString(text[written:])
	}
	return out, changed, len(text)
}

func load(s string, i int) uint64 {
	_ = s[i+7]
	return uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
		uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
}

// Text masks a complete text. A value that is truncated at the end of the text is masked if at
// least a third of it is present.
func (m *Masker) Text(text string) string {
	if m == nil {
		return text
	}
	out, changed, _ := m.scan(text, true)
	if !changed {
		return text
	}
	return out.String()
}

// Bytes is Text for bytes. It returns data itself if there is nothing to mask.
func (m *Masker) Bytes(data []byte) []byte {
	if m == nil {
		return data
	}
	if masked := m.Text(string(data)); masked != string(data) {
		return []byte(masked)
	}
	return data
}

// Stream masks a text that arrives in parts. held is what it held back before and more is the next
// part. It returns what can be shown, and what it holds back now: a suffix that may be the
// beginning of a value. When the text ends, show Text of what is held back.
func (m *Masker) Stream(held, more string) (shown, hold string) {
	text := held + more
	if m == nil {
		return text, ""
	}
	out, changed, from := m.scan(text, false)
	if !changed {
		return text[:from], text[from:]
	}
	return out.String(), text[from:]
}

// JSON masks the strings in a JSON text, including names of members. Everything else is unchanged.
func (m *Masker) JSON(raw json.RawMessage) json.RawMessage {
	if m == nil || len(raw) == 0 {
		return raw
	}
	var out []byte
	written := 0
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		from, escaped := i, false
		for i++; i < len(raw) && raw[i] != '"'; i++ {
			if raw[i] == '\\' {
				escaped = true
				i++
			}
		}
		if i >= len(raw) {
			break // not JSON
		}
		literal := raw[from : i+1]
		text := string(literal[1 : len(literal)-1])
		if escaped && json.Unmarshal(literal, &text) != nil {
			continue
		}
		masked := m.Text(text)
		if masked == text {
			continue
		}
		out = append(append(out, raw[written:from]...), quote(masked, false)...)
		written = i + 1
	}
	if written == 0 {
		return raw
	}
	return append(out, raw[written:]...)
}
