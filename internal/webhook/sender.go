package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"code.dny.dev/ssrf"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/overwinter-dev/overwinter/internal/secret"
)

// Sender sends messages.
type Sender struct{ client *http.Client }

// NewSender returns a Sender that only connects to public addresses, unless private is set.
func NewSender(private bool, userAgent string) *Sender {
	dialer := &net.Dialer{Timeout: attemptTimeout}
	if !private {
		dialer.Control = ssrf.New(ssrf.WithAnyPort(), ssrf.WithNetworks("tcp4", "tcp6")).Safe
	}
	return &Sender{client: &http.Client{
		Timeout: attemptTimeout,
		Transport: agentTransport{userAgent, &http.Transport{
			DialContext:         dialer.DialContext, // no proxy, which could connect to any address
			TLSHandshakeTimeout: attemptTimeout, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

type agentTransport struct {
	agent string
	next  http.RoundTripper
}

// RoundTrip sets the User-Agent.
func (t agentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", t.agent)
	return t.next.RoundTrip(r)
}

// Answer is the result of an attempt.
type Answer struct {
	Code  int           // 0 without a response
	Error string        // empty if delivered
	After time.Duration // pause that the receiver requested; 0 for none
	Gone  bool          // the receiver refuses further deliveries
}

// Send makes one attempt to deliver a body, signed with each of the secrets.
func (s *Sender) Send(ctx context.Context, url, deliveryID string, at time.Time, body []byte, secrets ...secret.Value) Answer {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Answer{Error: cut(err.Error())}
	}
	var signatures []string
	for _, key := range secrets {
		signer, err := standardwebhooks.NewWebhook(key.Reveal())
		if err != nil {
			return Answer{Error: "the secret is not in the form of Standard Webhooks"}
		}
		signature, err := signer.Sign(deliveryID, at, body)
		if err != nil {
			return Answer{Error: cut(err.Error())}
		}
		signatures = append(signatures, signature)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(standardwebhooks.HeaderWebhookID, deliveryID)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	response, err := s.client.Do(request)
	if err != nil {
		return Answer{Error: cut(reason(err))}
	}
	defer response.Body.Close()
	io.CopyN(io.Discard, response.Body, maxResponse) //nolint:errcheck // the content of the response is irrelevant
	a := Answer{Code: response.StatusCode, Gone: response.StatusCode == http.StatusGone}
	switch {
	case a.Code >= 200 && a.Code < 300:
		return a
	case a.Code >= 300 && a.Code < 400:
		a.Error = fmt.Sprintf("the receiver answered %d; redirects are not followed", a.Code)
	default:
		a.Error = fmt.Sprintf("the receiver answered %d", a.Code)
	}
	if a.Code == http.StatusTooManyRequests || a.Code == http.StatusServiceUnavailable {
		a.After = retryAfter(response.Header.Get("Retry-After"))
	}
	return a
}

// reason returns the text of an error without the address, which people know, and with clearer
// wording than that of the libraries.
func reason(err error) string {
	if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) || errors.Is(err, ssrf.ErrProhibitedPort) {
		return "the address is not public; the worker's --webhook-private-addresses permits it"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fmt.Sprintf("no answer within %s", attemptTimeout)
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner.Error()
	}
	return err.Error()
}

func retryAfter(text string) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 7*24*3600)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

func cut(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
	if runes := []rune(text); len(runes) > maxErrorText {
		return string(runes[:maxErrorText])
	}
	return text
}
