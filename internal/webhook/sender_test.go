package webhook_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/webhook"
)

const id = "whd_0123456789abcdef0123456789abcdef"

func TestAnyLibraryOfStandardWebhooksVerifiesDelivery(t *testing.T) {
	t.Parallel()
	secrets := []secret.Value{webhook.NewSecret(), webhook.NewSecret()}
	body := []byte(`{"type":"session.idle"}`)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != string(body) || r.Header.Get("User-Agent") != "overwinter/test" || r.Header.Get("webhook-id") != id {
			t.Errorf("%s %v %v", got, r.Header, err)
		}
		for _, key := range secrets {
			verifier, err := standardwebhooks.NewWebhook(key.Reveal())
			if err == nil {
				err = verifier.Verify(got, r.Header)
			}
			if err != nil {
				t.Error(err)
			}
		}
		other, err := standardwebhooks.NewWebhook(webhook.NewSecret().Reveal())
		if err != nil || other.Verify(got, r.Header) == nil {
			t.Error("another secret verifies it")
		}
	}))
	defer receiver.Close()
	answer := webhook.NewSender(true, "overwinter/test").Send(t.Context(), receiver.URL, id, time.Now(), body, secrets...)
	require.Equal(t, webhook.Answer{Code: 200}, answer)
}

func TestNonPublicAddressesAreRefusedOnConnect(t *testing.T) {
	t.Parallel()
	called := false
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
	defer receiver.Close()
	port := receiver.URL[strings.LastIndex(receiver.URL, ":"):]
	public := webhook.NewSender(false, "test")
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "169.254.169.254",
		"[::1]", "[::]", "[fe80::1]", "[fd00::1]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[ff02::1]",
	} {
		answer := public.Send(t.Context(), "http://"+host+port, id, time.Now(), nil, webhook.NewSecret())
		require.Zero(t, answer.Code, host)
		require.NotEmpty(t, answer.Error, host)
		if host != "2130706433" { // a name that the resolver may not know
			require.Contains(t, answer.Error, "not public", host)
		}
	}
	require.False(t, called)
}

func TestAnswersOfReceivers(t *testing.T) {
	t.Parallel()
	status, header := 0, ""
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", header)
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(status)
	}))
	send := func(code int, after string) webhook.Answer {
		status, header = code, after
		return webhook.NewSender(true, "test").Send(t.Context(), receiver.URL, id, time.Now(), nil, webhook.NewSecret())
	}
	require.Equal(t, webhook.Delivered, webhook.Judge(send(204, ""), 0).Status)
	for code, words := range map[int]string{307: "redirects are not followed", 404: "answered 404", 500: "answered 500"} {
		answer := send(code, "")
		require.Contains(t, answer.Error, words)
		require.Equal(t, webhook.Pending, webhook.Judge(answer, 0).Status)
	}
	gone := webhook.Judge(send(410, ""), 0)
	require.Equal(t, webhook.Verdict{Status: webhook.Failed, Reason: webhook.ReasonDisabled, Disable: webhook.ReasonGone}, gone)
	require.Equal(t, 90*time.Second, webhook.Judge(send(429, "90"), 0).Pause)
	require.Equal(t, 24*time.Hour, webhook.Judge(send(503, "99999999"), 0).Pause)
	require.Less(t, webhook.Judge(send(500, "90"), 0).Pause, 7*time.Second, "only where it makes sense")
	receiver.Close()
	require.Contains(t, send(200, "").Error, "refused")
	require.Equal(t, webhook.Verdict{Status: webhook.Failed, Reason: webhook.ReasonExhausted}, webhook.Judge(webhook.Answer{Error: "no"}, len(webhook.Schedule)))
}

func TestSilentReceiverTimesOut(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer receiver.Close()
	defer close(done)
	began := time.Now()
	answer := webhook.NewSender(true, "test").Send(t.Context(), receiver.URL, id, time.Now(), nil, webhook.NewSecret())
	require.Contains(t, answer.Error, "no answer within 15s")
	require.GreaterOrEqual(t, time.Since(began), 15*time.Second)
}

func TestEndpointErrors(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"https://example.com", "https://example.com:8443/a?b=c", "https://[2001:db8::1]/x"} {
		require.Empty(t, webhook.CheckURL(good, false), good)
	}
	for bad, words := range map[string]string{
		"http://example.com": "https", "ftp://example.com": "https", "example.com": "absolute", "https:///x": "absolute", "https://example.com:70000": "port", "https://example.com:0/": "port", "https://u:p@example.com": "password",
		"https://example.com/#x": "fragment", "": "absolute", "https://exa mple.com": "absolute", "https://example.com/" + strings.Repeat("x", webhook.MaxURL): "bytes",
	} {
		require.Contains(t, webhook.CheckURL(bad, false), words, bad)
	}
	require.Empty(t, webhook.CheckURL("http://127.0.0.1:9000/x", true))
	require.Empty(t, webhook.CheckTypes([]lifecycle.Type{lifecycle.SessionIdle, lifecycle.PromptFailed}))
	require.Contains(t, webhook.CheckTypes([]lifecycle.Type{"session.hungry"}), "session.hungry")
	require.Contains(t, webhook.CheckTypes([]lifecycle.Type{lifecycle.SessionIdle, lifecycle.SessionIdle}), "repeat")
}
