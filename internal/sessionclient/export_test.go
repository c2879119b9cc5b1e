package sessionclient

import "time"

// WithTimeout returns o with another timeout for every call.
func (o *Client) WithTimeout(d time.Duration) *Client {
	changed := *o
	changed.timeout = d
	return &changed
}
