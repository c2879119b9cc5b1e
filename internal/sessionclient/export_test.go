package sessionclient

import "time"

// Patient returns o with another timeout for every call.
func (o *Client) Patient(d time.Duration) *Client {
	patient := *o
	patient.timeout = d
	return &patient
}
