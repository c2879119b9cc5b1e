package api_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const apiKey = "a-key-of-more-than-twenty-characters"

func newKeyring(t testing.TB, bytes ...byte) *secret.Keyring {
	t.Helper()
	var keys [][]byte
	for _, b := range bytes {
		keys = append(keys, []byte(strings.Repeat(string(rune(b)), secret.KeyBytes)))
	}
	keyring, err := secret.NewKeyring(keys[0], keys[1:]...)
	require.NoError(t, err)
	return keyring
}

// setupTokens starts a server with a key, which requests of the test do not send by default.
func setupTokens(t *testing.T, keys ...byte) *harness {
	t.Helper()
	return setup(t, func(c *api.Config) { c.Key, c.Tokens = secret.NewValue(apiKey), newKeyring(t, keys...) })
}

func (b *harness) streamToken(id string) string {
	b.t.Helper()
	a := b.do("POST", "/api/sessions/"+id+"/stream-tokens", "", "Authorization", "Bearer "+apiKey)
	require.Equal(b.t, http.StatusCreated, a.status, "%s", a.body)
	require.Equal(b.t, "no-store", a.header.Get("Cache-Control"))
	var made struct {
		SessionID, Token string
		ExpiresAt        time.Time
	}
	a.into(&made)
	require.Equal(b.t, id, made.SessionID)
	require.WithinDuration(b.t, time.Now().Add(15*time.Minute), made.ExpiresAt, waitLimit)
	return made.Token
}

func TestStreamTokenReadsStreamsOfOneSession(t *testing.T) {
	t.Parallel()
	b := setupTokens(t, 'a')
	id, other := b.store.Put(session.Running), b.store.Put(session.Running)
	b.store.Text(id, "x")
	token := b.streamToken(id)
	path := "/api/sessions/" + id
	require.Equal(t, []string{"1 text_delta", `caught_up {"seq":1}`}, b.stream(path+"/events?token="+token).brief(2))
	require.Equal(t, []int64{1}, b.do("GET", path+"/stream?token="+token, "").seqs())
	require.Equal(t, "0000000000000001", b.do("HEAD", path+"/stream?token="+token, "").position())
	require.Equal(t, http.StatusOK, b.do("GET", path+"/events?token="+token, "", "Accept", "application/json").status)

	for _, request := range []string{
		"GET " + path, "GET " + path + "/blocks", "GET /api/sessions", "POST " + path + "/prompts", "POST " + path + "/stream-tokens",
		"POST " + path + "/events", "DELETE " + path + "/stream", "GET /api/sessions/" + other + "/events", "GET /api/sessions/" + other + "/stream",
	} {
		method, target, _ := strings.Cut(request, " ")
		b.do(method, target+"?token="+token, "").problem(http.StatusUnauthorized, "unauthorized")
	}
	b.do("GET", path+"/events?token="+token, "", "Authorization", "Bearer wrong").problem(http.StatusUnauthorized, "unauthorized")
	b.do("GET", path+"/events", "", "Authorization", "Bearer "+token).problem(http.StatusUnauthorized, "unauthorized")
	for _, wrong := range []string{"x", "owst_", token[:20], token + "AA", "owst_" + base64.RawURLEncoding.EncodeToString(make([]byte, 40))} {
		b.do("GET", path+"/stream?token="+wrong, "").problem(http.StatusUnauthorized, "unauthorized")
	}
	b.do("POST", "/api/sessions/ses_0123456789abcdef0123456789abcdef/stream-tokens", "", "Authorization", "Bearer "+apiKey).problem(http.StatusNotFound, "session_not_found")
	b.do("POST", path+"/stream-tokens", `{"minutes":60}`, "Authorization", "Bearer "+apiKey).problem(http.StatusBadRequest, "invalid_request")
	require.NoError(t, b.stop())
	require.Contains(t, b.logs.String(), "/stream")
	require.NotContains(t, b.logs.String(), token[8:], "no log has a token")
}

func TestStreamTokenSurvivesRotationOfKey(t *testing.T) {
	t.Parallel()
	before, during, after := setupTokens(t, 'a'), setupTokens(t, 'b', 'a'), setupTokens(t, 'b')
	id := before.store.Put(session.Running)
	token := before.streamToken(id)
	require.Equal(t, http.StatusNotFound, during.do("GET", "/api/sessions/"+id+"/stream?token="+token, "").status, "admitted; another store")
	require.Equal(t, http.StatusUnauthorized, after.do("GET", "/api/sessions/"+id+"/stream?token="+token, "").status)
}

func TestAPIWithoutSecretKeyHasNoStreamTokens(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Key = secret.NewValue(apiKey) })
	id := b.store.Put(session.Running)
	p := b.do("POST", "/api/sessions/"+id+"/stream-tokens", "", "Authorization", "Bearer "+apiKey).problem(http.StatusServiceUnavailable, "unavailable")
	require.Contains(t, p.Detail, "OVERWINTER_SECRET_KEY")
	b.do("GET", "/api/sessions/"+id+"/stream?token=owst_x", "").problem(http.StatusUnauthorized, "unauthorized")
}

func TestStreamTokenExpires(t *testing.T) {
	t.Parallel()
	keyring := newKeyring(t, 'a')
	at := time.Now().Add(time.Minute).Truncate(time.Millisecond)
	token := api.SignToken(keyring, "ses_a", at)
	got, err := api.CheckToken(keyring, "ses_a", token, at.Add(-time.Millisecond))
	require.NoError(t, err)
	require.True(t, at.Equal(got))
	_, err = api.CheckToken(keyring, "ses_a", token, at)
	require.ErrorContains(t, err, "expired")
	_, err = api.CheckToken(keyring, "ses_b", token, at.Add(-time.Second))
	require.ErrorContains(t, err, "not one of this session")
}

func TestStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	b := setupTokens(t, 'a')
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/events?token="
	b.expiring(id, func(token string) bool {
		if !strings.Contains(b.chat("GET", path+token, "").body, "caught_up") { // the stream ends with its token
			return false
		}
		b.do("GET", path+token, "").problem(http.StatusUnauthorized, "unauthorized")
		return true
	})
	token := api.SignToken(newKeyring(t, 'a'), id, time.Now().Add(2*time.Second))
	b.do("GET", path+token+"&wait=1m", "", "Accept", "application/json").problem(http.StatusUnauthorized, "unauthorized")
}

// expiring calls use with a token that expires soon. While use reports that it was too late,
// expiring calls it again with a token that lasts longer.
func (b *harness) expiring(id string, use func(token string) bool) {
	b.t.Helper()
	for lasts := time.Second; ; lasts *= 2 {
		require.Less(b.t, lasts, waitLimit)
		if use(api.SignToken(newKeyring(b.t, 'a'), id, time.Now().Add(lasts))) {
			return
		}
	}
}
