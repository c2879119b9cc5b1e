// Package webhook notifies programs of lifecycle events over HTTP, according to Standard Webhooks
// (https://www.standardwebhooks.com). It defines endpoints, the retries of deliveries, their
// content, and how they are signed and sent. Package postgres stores them; a workflow makes the
// attempts.
//
//	lifecycle event ──▶ delivery: pending ──attempt──▶ delivered   the endpoint responded with 2xx
//	                         ▲      │
//	                         └──────┴─▶ failed    the schedule is used up, the endpoint was disabled or deleted,
//	                       after a pause          or the event is no longer stored
//
// A call can send a failed or delivered delivery again: it then is pending with the first pause of
// the schedule.
//
// # Invariants
//
//   - An event that an enabled endpoint selects is in exactly one delivery to it, despite crashes
//     and restarts: deliveries are written together with the position up to which events have
//     deliveries.
//   - A receiver may get a delivery more than once, always with the same id, because a response may
//     be lost.
//   - No connection is opened to an address that is not public, even if a name resolves to it,
//     unless the installation permits that. Redirects are not followed.
//   - An endpoint's secret is stored sealed and shown once. During a rotation both secrets sign.
package webhook
