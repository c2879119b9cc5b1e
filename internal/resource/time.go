package resource

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// TimeLayout has exactly three decimals, so that times sort as text.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Time marshals as RFC 3339 in UTC with milliseconds.
type Time time.Time

// OptionalTime returns nil for the zero time, so that omitempty omits it.
func OptionalTime(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	w := Time(t)
	return &w
}

// String returns the JSON form of t, without the quotes.
func (t Time) String() string { return time.Time(t).UTC().Format(TimeLayout) }

// MarshalJSON writes t as a JSON string.
func (t Time) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// UnmarshalJSON reads any RFC 3339 time.
func (t *Time) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("time: %w", err)
	}
	parsed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("time: %w", err)
	}
	*t = Time(parsed.UTC())
	return nil
}

// Duration marshals as a Go duration string such as "15m0s".
type Duration = session.Duration
