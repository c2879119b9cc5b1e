package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// Prefixes of ids.
const (
	Prefix         = "whk_"
	DeliveryPrefix = "whd_"
)

// Limits.
const (
	MaxEndpoints    = 50
	MaxURL          = 2048    // bytes
	MaxDescription  = 500     // characters
	MaxPending      = 10_000  // pending deliveries of one endpoint; later events wait in the event log
	MaxReplay       = 1_000   // deliveries that one call sends again
	MaxBeginning    = 8       // deliveries of one endpoint that begin at the same time
	maxResponse     = 4 << 10 // bytes of a response that are read
	maxErrorText    = 500     // characters of an error that are stored
	DefaultOverlap  = 24 * time.Hour
	MaxOverlap      = 7 * 24 * time.Hour
	attemptTimeout  = 15 * time.Second
	DisableAfter    = 5 * 24 * time.Hour // time of failures without a success
	secretKeyLength = 32
)

// Endpoint is a receiver of deliveries.
type Endpoint struct {
	ID          string
	URL         string
	Description string
	Filter      lifecycle.Filter // selects the events that it receives
	Enabled     bool
	// DisabledReason is why it was disabled automatically: failing, gone.
	DisabledReason string
	FailingSince   time.Time // zero if the last delivery succeeded, or there was none
	Pending        int64     // unfinished deliveries
	RotatedUntil   time.Time // until then the secret from before the last rotation also signs; zero for none
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Reasons why an endpoint is disabled.
const (
	ReasonFailing = "failing" // all deliveries failed for DisableAfter
	ReasonGone    = "gone"    // it responded with 410
)

// NewSecret returns a new secret in the format of Standard Webhooks.
func NewSecret() secret.Value {
	var key [secretKeyLength]byte
	rand.Read(key[:])
	return secret.NewValue("whsec_" + base64.StdEncoding.EncodeToString(key[:]))
}

// SealName returns the name under which the secret of an endpoint is sealed.
func SealName(endpointID string) string { return "webhook:" + endpointID }

// CheckURL returns what is wrong with the URL of an endpoint; empty if it is valid. Addresses that
// are not public are refused when connecting, not here, since a name may resolve to them.
func CheckURL(text string, private bool) string {
	u, err := url.Parse(text)
	switch {
	case len(text) > MaxURL:
		return fmt.Sprintf("is %d bytes long; at most %d are allowed", len(text), MaxURL)
	case err != nil || u.Host == "" || u.Opaque != "" || u.Hostname() == "" || strings.ContainsAny(text, " \t\r\n"):
		return "must be an absolute URL such as https://example.com/hooks/overwinter"
	case u.Port() != "" && !validPort(u.Port()):
		return "must have a port from 1 to 65535, or none"
	case u.User != nil:
		return "must not contain a user or a password: deliveries are signed"
	case u.Fragment != "":
		return "must not have a fragment"
	case u.Scheme != "https" && (!private || u.Scheme != "http"):
		if private {
			return "must begin with https:// or http://"
		}
		return "must begin with https://"
	}
	return ""
}

func validPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

// CheckTypes returns what is wrong with a list of event types; empty if it is valid.
func CheckTypes(types []lifecycle.Type) string {
	for _, t := range types {
		if !t.Valid() {
			return fmt.Sprintf("%q is none of %v", t, lifecycle.Types)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(types)))) != len(types) {
		return "must not repeat a type"
	}
	return ""
}
