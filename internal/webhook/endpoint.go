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

// The prefixes of ids.
const (
	Prefix         = "whk_"
	DeliveryPrefix = "whd_"
)

// Limits.
const (
	MaxEndpoints    = 50
	MaxURL          = 2048    // bytes
	MaxDescription  = 500     // characters
	MaxPending      = 10_000  // deliveries of one endpoint; later events wait in the log of events
	MaxReplay       = 1_000   // deliveries that one call sends again
	MaxBeginning    = 8       // deliveries of one endpoint that begin at once
	maxResponse     = 4 << 10 // bytes of a response that are read
	maxErrorText    = 500     // characters of an error that are kept
	DefaultOverlap  = 24 * time.Hour
	MaxOverlap      = 7 * 24 * time.Hour
	attemptTimeout  = 15 * time.Second
	DisableAfter    = 5 * 24 * time.Hour // of failures without a success
	secretKeyLength = 32
)

// Endpoint is where deliveries go.
type Endpoint struct {
	ID          string
	URL         string
	Description string
	Filter      lifecycle.Filter // which events it gets
	Enabled     bool
	// DisabledReason is why it was disabled other than by a call: failing, gone.
	DisabledReason string
	FailingSince   time.Time // zero: the last delivery succeeded, or there was none
	Pending        int64     // deliveries that are not over
	RotatedUntil   time.Time // the secret before the last rotation signs until then; zero for none
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Reasons for which an endpoint is disabled.
const (
	ReasonFailing = "failing" // nothing was delivered for DisableAfter
	ReasonGone    = "gone"    // it answered 410
)

// NewSecret returns a fresh secret in the form of Standard Webhooks.
func NewSecret() secret.Value {
	var key [secretKeyLength]byte
	rand.Read(key[:])
	return secret.NewValue("whsec_" + base64.StdEncoding.EncodeToString(key[:]))
}

// SealName is the name under which the secret of an endpoint is sealed.
func SealName(endpointID string) string { return "webhook:" + endpointID }

// CheckURL says what is wrong with the address of an endpoint; empty if nothing is. Addresses that are not public are refused
// when a connection is made, not here: a name may hide them.
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

// CheckTypes says what is wrong with a list of types of events; empty if nothing is.
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
