package client

import (
	"encoding/json"
	"fmt"
	"time"
)

// Time is a time of the API. In JSON it is RFC 3339 in UTC with milliseconds.
type Time struct{ time.Time }

// timeLayout has the three decimals spelled out, so that times sort as text.
const timeLayout = "2006-01-02T15:04:05.000Z"

// String returns t as in JSON, without the quotes.
func (t Time) String() string { return t.UTC().Format(timeLayout) }

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
	t.Time = parsed.UTC()
	return nil
}

// Duration is a time span. In JSON it is a Go duration string such as "15m0s".
type Duration time.Duration

// String formats d like time.Duration.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes d as String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText accepts the syntax of time.ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}
