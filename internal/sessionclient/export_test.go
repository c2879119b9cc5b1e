package sessionclient

import "time"

// Patient is o with another bound for every call.
func (o *Client) Patient(d time.Duration) *Client {
	patient := *o
	patient.timeout = d
	return &patient
}
