// Package webhook notifies programs of lifecycle events over HTTP, as Standard Webhooks says
// (https://www.standardwebhooks.com): what an endpoint is, when a delivery is tried again, what it contains and how it is signed and
// sent. What is stored says package postgres; a workflow makes the attempts.
//
//	lifecycle event ──▶ delivery: pending ──attempt──▶ delivered   the endpoint answered 2xx
//	                         ▲      │
//	                         └──────┴─▶ failed    the schedule is used up, the endpoint was disabled or deleted,
//	                       after a pause          or the event is not kept any more
//
// A failed or delivered delivery may be sent again by a call: it is pending with the first pause of the schedule.
//
// # Invariants
//
//   - An event that an enabled endpoint selects is in exactly one delivery to it, whatever is lost or restarted: the deliveries and the
//     position up to which there are deliveries are written together.
//   - A receiver may get a delivery more than once, always with the same id: an answer may be lost.
//   - No connection is opened to an address that is not public, whatever name resolves to it, unless the installation permits
//     that. Redirects are not followed.
//   - An endpoint's secret is stored sealed and shown once. During a rotation both secrets sign.
package webhook
