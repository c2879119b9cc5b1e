package secret_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/secret"
)

func named(pairs ...string) []secret.Named {
	var out []secret.Named
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, secret.Named{Name: pairs[i], Value: secret.NewValue(pairs[i+1])})
	}
	return out
}

const apiKey = "sk-ant-api03-Zm9vYmFyYmF6+/cXV4Cg==aGVsbG8td29ybGQtdGhpcy1pcy1hLWtleS1vZi0xMDgtYnl0ZXMtbG9uZy1hYmNkZWZnaGlqa2xtbm9wcXJz"

func TestMasksValueInEveryForm(t *testing.T) {
	t.Parallel()
	m := secret.NewMasker(named("KEY", apiKey, "OTHER", `pass "word" with\slash & é`))
	for _, value := range []string{apiKey, `pass "word" with\slash & é`} {
		quoted, err := json.Marshal(value)
		require.NoError(t, err)
		forms := map[string]string{
			"plain": value, "query": url.QueryEscape(value), "path": url.PathEscape(value),
			"query, lower case": strings.NewReplacer("%2F", "%2f", "%2B", "%2b", "%3D", "%3d", "%5C", "%5c", "%C3", "%c3", "%A9", "%a9").Replace(url.QueryEscape(value)),
			"JSON":              string(quoted[1 : len(quoted)-1]),
			"hexadecimal":       fmt.Sprintf("%x", value),
			"HEXADECIMAL":       fmt.Sprintf("%X", value),
			"JSON in JSON":      inJSON(inJSON(value)),
			"… in JSON":         inJSON(inJSON(inJSON(value))),
			"HTML":              html.EscapeString(value),
			"XML":               strings.ReplaceAll(html.EscapeString(value), "&#34;", "&quot;"),
			"every byte":        percent(value, ""),
		}
		// Characters that various encoders leave unchanged: Python, JavaScript (both), Java, Go and
		// curl.
		for _, safe := range []string{"_.-~/", "_.-~", "_.-~!'()*", "_.-~!'()*;,/?:@&=+$#", "_.-*", "_.-~$&+=:@"} {
			safe += "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
			forms["without "+safe] = percent(value, safe)
			forms["as a form, without "+safe] = strings.ReplaceAll(percent(value, safe), "%20", "+")
		}
		for name, form := range forms {
			got := m.Text("before " + form + " after")
			require.Regexp(t, `^before \[redacted (KEY|OTHER)\] after$`, got, name)
		}
		for before := range 6 {
			for after := range 4 {
				for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
					encoded := e.EncodeToString([]byte(strings.Repeat("x", before) + value + strings.Repeat("\n", after)))
					got := m.Text(encoded)
					require.Contains(t, got, "[redacted ", encoded)
					rest := strings.NewReplacer("[redacted KEY]", "", "[redacted OTHER]", "").Replace(got)
					require.LessOrEqual(t, len(rest), 8+3+5, "%s: %s", encoded, got)

					// As printed by the program base64.
					var lines strings.Builder
					for text := encoded; text != ""; {
						n := min(76, len(text))
						lines.WriteString(text[:n] + "\r\n")
						text = text[n:]
					}
					require.Contains(t, m.Text(lines.String()), "[redacted ", lines.String())
				}
			}
		}
	}
}

// inJSON returns the text between the quotes of a JSON string.
func inJSON(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(quoted[1 : len(quoted)-1])
}

// percent encodes all bytes except the safe ones as a percent sign and two digits.
func percent(text, safe string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if strings.IndexByte(safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Programs show the lines of a file with numbers, indented, or with other line breaks.
func TestLinesOfMultilineKeyAreMasked(t *testing.T) {
	t.Parallel()
	lines := []string{
		"-----BEGIN PRIVATE KEY-----", "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgZm9vYmFyYmF6cXV4",
		"hRANCAAQ1bm90aGluZ3RvLXNlZS1oZXJlLWp1c3QtYS10ZXN0LWtleS1vZi1saW5l", "c2hvcnQ=", "-----END PRIVATE KEY-----",
	}
	key := strings.Join(lines, "\n") + "\n"
	account, err := json.Marshal(map[string]string{"type": "service_account", "private_key": key})
	require.NoError(t, err)
	for _, value := range []string{key, string(account)} {
		m := secret.NewMasker(named("PEM", value))
		var shown strings.Builder
		for i, line := range lines {
			fmt.Fprintf(&shown, "%6d\t%s\r\n", i+1, line)
		}
		got := m.Text(shown.String())
		require.NotContains(t, got, lines[1])
		require.NotContains(t, got, lines[2])
		require.Contains(t, got, "[redacted PEM]")
		require.Equal(t, lines[0]+"\nabc", m.Text(lines[0]+"\nabc"), "this is in every key")
	}
}

func TestMaskedValues(t *testing.T) {
	t.Parallel()
	m := secret.NewMasker(named(
		"SHORT", "1234567", "BASE_URL", "https://models.example.com/v1", "PROXY_URL", "http://me:hidden-password@proxy.example.com:3128",
		"DATABASE", "postgres://app:database-password@db/app", "git:github.com", "x-access-token:ghp_0123456789abcdef",
		"git:gitlab.com", "glpat-0123456789abcdefghij:x-oauth-basic", "LINES", "  -----BEGIN KEY-----\nabc\ndef\n-----END KEY-----\n",
		"ACCOUNT", `{"type": "service_account", "project_id": "my-project-name", "private_key": "0123456789-private", "token_uri": "https://oauth2.example.com/token"}`,
	))
	for _, text := range []string{
		"1234567", "https://models.example.com/v1/messages", "http://proxy.example.com:3128", "x-access-token", "x-oauth-basic",
		"my-project-name", "service_account", "https://oauth2.example.com/token", "postgres://app@db/app", "ghp_", "",
	} {
		require.Equal(t, text, m.Text(text))
	}
	for _, value := range []string{
		"hidden-password", "database-password", "ghp_0123456789abcdef", "glpat-0123456789abcdefghij", "0123456789-private",
		"-----BEGIN KEY-----\nabc\ndef\n-----END KEY-----", `-----BEGIN KEY-----\nabc\ndef\n-----END KEY-----`,
		base64.StdEncoding.EncodeToString([]byte("x-access-token:ghp_0123456789abcdef")),
	} {
		require.NotContains(t, m.Text("a "+value+" b"), value)
		require.Contains(t, m.Text("a "+value+" b"), "[redacted ")
	}
	require.Nil(t, secret.NewMasker(named("git:a", "", "SHORT", "x", "URL", "https://a.example.com")))
	var nothing *secret.Masker
	require.Equal(t, "text", nothing.Text("text"))
	shown, hold := nothing.Stream("a", "b")
	require.Equal(t, "ab", shown+hold)
}

func TestTruncatedValueShowsLessThanThird(t *testing.T) {
	t.Parallel()
	m := secret.NewMasker(named("KEY", apiKey))
	for n := range apiKey {
		got := m.Text("key: " + apiKey[:n])
		require.Less(t, len(strings.TrimPrefix(got, "key: ")), len(apiKey)/3+len("[redacted KEY]"), "%d: %s", n, got)
		if 3*n >= len(apiKey) {
			require.Equal(t, "key: [redacted KEY]", got)
		}
	}
	require.Equal(t, apiKey[:60]+" x", m.Text(apiKey[:60]+" x"), "only at the end: elsewhere it is another text")
}

func TestJSONIsMaskedInItsStrings(t *testing.T) {
	t.Parallel()
	m := secret.NewMasker(named("KEY", `a "quoted" value`, "PLAIN", "plain-value-1234"))
	for in, want := range map[string]string{
		`{"a": "x a \"quoted\" value y", "n":1.50, "b":["plain-value-1234"]}`: `{"a": "x [redacted KEY] y", "n":1.50, "b":["[redacted PLAIN]"]}`,
		`{"plain-value-1234":null}`:            `{"[redacted PLAIN]":null}`,
		`"\u0070lain-value-1234"`:              `"[redacted PLAIN]"`,
		`"{\"k\":\"a \\\"quoted\\\" value\"}"`: `"{\"k\":\"[redacted KEY]\"}"`,
		`"unterminated plain-value-1234`:       `"unterminated plain-value-1234`,
		`{"same":"<&>\u00e9"}`:                 `{"same":"<&>\u00e9"}`,
	} {
		require.Equal(t, want, string(m.JSON(json.RawMessage(in))))
	}
}

// reference masks without regard to performance.
func reference(values map[string]string, text string) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		best := ""
		for value := range values {
			if strings.HasPrefix(text[i:], value) && len(value) > len(best) {
				best = value
			}
		}
		if best == "" {
			out.WriteByte(text[i])
			i++
			continue
		}
		out.WriteString("[redacted " + values[best] + "]")
		i += len(best)
	}
	return out.String()
}

// However a text is divided, the shown text is the same, and nothing is held back that cannot be
// the beginning of a value.
func TestMaskedStreamMatchesMaskedText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Few letters, so that values overlap, are prefixes of each other and repeat themselves.
		letters := rapid.SampledFrom([]rune("ab"))
		values := map[string]string{}
		var secrets []secret.Named
		for i := range rapid.IntRange(1, 6).Draw(t, "values") {
			value := rapid.StringOfN(letters, 8, 14, -1).Draw(t, "value")
			if _, ok := values[value]; !ok {
				values[value] = fmt.Sprint("S", i)
				secrets = append(secrets, secret.Named{Name: fmt.Sprint("S", i), Value: secret.NewValue(value)})
			}
		}
		m := secret.NewMasker(secrets)
		pieces := rapid.SliceOfN(rapid.OneOf(rapid.StringOfN(letters, 0, 9, -1), rapid.SampledFrom(secretsOf(secrets)),
			rapid.SampledFrom([]string{"\n", "x", "\r\n"})), 0, 12).Draw(t, "pieces")
		text := strings.Join(pieces, "") + "." // the text ends within no value
		require.Equal(t, reference(values, text), m.Text(text), "of %q", text)

		var shown strings.Builder
		held := ""
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "part")
			var s string
			s, held = m.Stream(held, rest[:n])
			shown.WriteString(s)
			if held != "" {
				require.True(t, beginsAny(values, held), "%q is held back", held)
			}
			rest = rest[n:]
		}
		shown.WriteString(m.Text(held))
		require.Equal(t, reference(values, text), shown.String())
	})
}

func secretsOf(secrets []secret.Named) []string {
	out := make([]string, len(secrets))
	for i, s := range secrets {
		out[i] = s.Value.Reveal()
	}
	return out
}

// beginsAny reports whether a value, or its base64 encoding, can begin with text.
func beginsAny(values map[string]string, text string) bool {
	text = strings.NewReplacer("\n", "", "\r", "").Replace(text)
	for value := range values {
		if strings.HasPrefix(value, text) {
			return true
		}
		for before := range 3 {
			encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), value...))
			if strings.HasPrefix(encoded[(before*8+5)/6:], text) {
				return true
			}
		}
	}
	return false
}

// A hostile text that repeats the beginning of many values costs about as much as any other.
func TestMaskingTakesLinearTime(t *testing.T) {
	t.Parallel()
	var secrets []secret.Named
	for i := range 1000 {
		secrets = append(secrets, secret.Named{Name: fmt.Sprint("K", i), Value: secret.NewValue(fmt.Sprintf("sk-ant-api03-%030d", i*7919))})
	}
	random := make([]byte, secret.MaxBytes*3/4)
	rand.Read(random)
	long := base64.RawStdEncoding.EncodeToString(random)
	m := secret.NewMasker(append(secrets, named("LONG", long)...))
	for _, piece := range []string{"sk-ant-api03-0000000000000000", "s\n", "sk-ant-a", long[:len(long)-1]} {
		text := strings.Repeat(piece, 1<<20/len(piece))
		require.NotEmpty(t, m.Text(text+"."))
	}
}

func BenchmarkMask(b *testing.B) {
	var secrets []secret.Named
	for i := range 20 {
		value := make([]byte, 80)
		rand.Read(value)
		secrets = append(secrets, secret.Named{Name: fmt.Sprint("KEY_", i), Value: secret.NewValue("sk-ant-api03-" + base64.RawURLEncoding.EncodeToString(value))})
	}
	m := secret.NewMasker(secrets)
	line := "The quick brown fox jumps over the lazy dog, sk-ant- and its s3cr3t; func main() { return nil } 0123456789\n"
	text := strings.Repeat(line, 64<<20/len(line)+1)[:64<<20]
	b.Run("64MiB", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if m.Text(text) != text {
				b.Fatal("masked")
			}
		}
	})
	b.Run("deltas", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			held := ""
			for rest := text; rest != ""; {
				n := min(20, len(rest))
				_, held = m.Stream(held, rest[:n])
				rest = rest[n:]
			}
		}
	})
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			secret.NewMasker(secrets)
		}
	})
}
