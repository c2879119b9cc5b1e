package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/webhook"
)

const (
	// dispatchPage bounds the events that one transaction turns into deliveries to an endpoint.
	dispatchPage = 500
	// deliveryOverdue is how late an attempt at a delivery may be before its workflow is started
	// again.
	deliveryOverdue = 2 * time.Minute
	// attemptsKept is the number of attempts that are stored of a delivery.
	attemptsKept = 30
)

// WebhooksDispatch creates deliveries of a bounded number of events that endpoints have not
// received, and reports whether there were any. Any number of workers may call it concurrently.
func (db *DB) WebhooksDispatch(ctx context.Context) (any bool, err error) {
	err = db.inTx(ctx, "dispatch to webhooks", pgx.TxOptions{}, func(tx pgx.Tx) error {
		endpoints, err := db.q.WebhooksToDispatch(ctx, tx, webhook.MaxPending)
		if err != nil {
			return err
		}
		for _, e := range endpoints {
			page, position, err := db.lifecycleRead(ctx, tx, e.AfterN, webhookFilter(e.Types, e.SessionID, e.Agent, e.Metadata), dispatchPage)
			if gone, ok := errors.AsType[*eventlog.PositionGoneError](position); ok {
				page.Position = gone.First - 1 // the events were deleted before they could be dispatched
			}
			if err != nil {
				return err
			}
			in := dbsqlc.WebhookDeliveriesInsertParams{WebhookID: e.ID}
			for _, found := range page.Events {
				in.Ids = append(in.Ids, session.NewID(webhook.DeliveryPrefix))
				in.Ns, in.SessionIds, in.Types = append(in.Ns, found.Position), append(in.SessionIds, found.Session.ID), append(in.Types, string(found.Type))
			}
			if len(in.Ids) > 0 {
				if err := db.q.WebhookDeliveriesInsert(ctx, tx, &in); err != nil {
					return err
				}
			}
			if err := db.q.WebhookAdvance(ctx, tx, &dbsqlc.WebhookAdvanceParams{ID: e.ID, AfterN: page.Position}); err != nil {
				return err
			}
			any = true
		}
		return nil
	})
	return any, err
}

// WebhookDeliveriesDue returns deliveries whose workflow must be started: new ones, and those whose
// workflow was lost.
func (db *DB) WebhookDeliveriesDue(ctx context.Context, limit int) ([]string, error) {
	ids, err := db.q.WebhookDeliveriesDue(ctx, db.pool, &dbsqlc.WebhookDeliveriesDueParams{
		MaxItems: int32(limit), MaxBeginning: webhook.MaxBeginning, OverdueSeconds: deliveryOverdue.Seconds(),
	})
	return ids, fault("choose deliveries", err)
}

// WebhookDeliveriesStarted records that the workflows of deliveries have started.
func (db *DB) WebhookDeliveriesStarted(ctx context.Context, ids []string) error {
	return fault("record started deliveries", db.q.WebhookDeliveriesStarted(ctx, db.pool, ids))
}

// WebhookDeliveriesDelete deletes a bounded number of deliveries that ended before a time, and
// reports whether more may remain.
func (db *DB) WebhookDeliveriesDelete(ctx context.Context, before time.Time) (more bool, err error) {
	n, err := db.q.WebhookDeliveriesDelete(ctx, db.pool, &dbsqlc.WebhookDeliveriesDeleteParams{Before: &before, MaxItems: lifecycleBatch})
	return n == lifecycleBatch, fault("delete deliveries", err)
}

// WebhookDeliveryDue returns a delivery with all data for an attempt; delivery_not_found if it was
// deleted.
func (db *DB) WebhookDeliveryDue(ctx context.Context, id string) (due webhook.Due, err error) {
	err = db.inTx(ctx, "read a delivery", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		row, err := db.q.WebhookDeliveryGet(ctx, tx, id)
		if isNoRows(err) {
			return failure.Errorf(failure.NoDelivery, "there is no delivery %s", id)
		}
		if err != nil {
			return err
		}
		due.Delivery = delivery(dbsqlc.WebhookDeliveriesListRow(row))
		to, err := db.q.WebhookGet(ctx, tx, row.WebhookID)
		if err != nil {
			return err
		}
		due.Endpoint, due.Sealed = endpoint(to, 0), to.Sealed
		if !due.Endpoint.RotatedUntil.IsZero() {
			due.OldSealed = to.OldSealed
		}
		if row.N == nil {
			due.Event = &lifecycle.Event{Type: webhook.TypeTest, At: due.Delivery.CreatedAt}
			return nil
		}
		found, err := db.q.LifecycleRead(ctx, tx, []int64{*row.N})
		if err != nil || len(found) == 0 {
			return err
		}
		if e, ok := lifecycleEvent(found[0]); ok {
			due.Event = &e
		}
		return nil
	})
	return due, err
}

// WebhookAttempted records an attempt at a delivery, if one was made, and its result: another
// attempt after a pause, or the end of the delivery with a status and a reason. It disables an
// endpoint that has failed for too long, or that refuses further deliveries. It reports whether the
// delivery has ended, possibly by another call.
func (db *DB) WebhookAttempted(ctx context.Context, id string, a *webhook.Attempt, v webhook.Verdict) (ended bool, err error) {
	err = db.inTx(ctx, "record an attempt at a delivery", pgx.TxOptions{}, func(tx pgx.Tx) error {
		row, err := db.q.WebhookDeliveryLock(ctx, tx, id)
		if isNoRows(err) {
			ended = true
			return nil
		}
		if err != nil {
			return err
		}
		if a != nil {
			err := db.q.WebhookAttemptInsert(ctx, tx, &dbsqlc.WebhookAttemptInsertParams{
				DeliveryID: id, At: a.At, DurationMs: a.Duration.Milliseconds(), Code: int32(a.Code), Error: a.Error,
			})
			if err != nil {
				return err
			}
			if err := db.q.WebhookAttemptsTrim(ctx, tx, &dbsqlc.WebhookAttemptsTrimParams{DeliveryID: id, MaxItems: attemptsKept}); err != nil {
				return err
			}
		}
		if ended = webhook.Status(row.Status) != webhook.Pending; ended {
			return nil
		}
		disable := v.Disable
		switch {
		case v.Status == webhook.Delivered:
			err = db.q.WebhookSucceeded(ctx, tx, row.WebhookID)
		case a != nil:
			tooLong, failing := db.q.WebhookFailing(ctx, tx, &dbsqlc.WebhookFailingParams{ID: row.WebhookID, MostSeconds: webhook.DisableAfter.Seconds()})
			if err = failing; tooLong && disable == "" {
				disable = webhook.ReasonFailing
			}
		}
		if err != nil {
			return err
		}
		ended = v.Status != webhook.Pending
		err = db.q.WebhookDeliverySet(ctx, tx, &dbsqlc.WebhookDeliverySetParams{
			ID: id, Status: string(v.Status), Reason: v.Reason, PauseSeconds: v.Pause.Seconds(),
		})
		if err != nil || disable == "" {
			return err
		}
		ended = true
		if err := db.q.WebhookDisable(ctx, tx, &dbsqlc.WebhookDisableParams{ID: row.WebhookID, Reason: disable}); err != nil {
			return err
		}
		return db.webhookGiveUp(ctx, tx, row.WebhookID)
	})
	return ended, err
}

// WebhookTest creates a delivery that tests an endpoint.
func (db *DB) WebhookTest(ctx context.Context, webhookID string) (webhook.Delivery, error) {
	id := session.NewID(webhook.DeliveryPrefix)
	err := db.inTx(ctx, "try a webhook", pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := db.webhookEnabled(ctx, tx, webhookID); err != nil {
			return err
		}
		return db.q.WebhookTestInsert(ctx, tx, &dbsqlc.WebhookTestInsertParams{ID: id, WebhookID: webhookID, Type: string(webhook.TypeTest)})
	})
	if err != nil {
		return webhook.Delivery{}, err
	}
	return db.WebhookDeliveryGet(ctx, webhookID, id)
}

// webhookEnabled locks an endpoint; illegal_state if it is disabled.
func (db *DB) webhookEnabled(ctx context.Context, tx pgx.Tx, id string) error {
	row, err := db.q.WebhookLock(ctx, tx, id)
	if isNoRows(err) {
		return noWebhook(id)
	}
	if err == nil && !row.Enabled {
		return illegal("webhook %s is disabled; enable it first", id)
	}
	return err
}

// WebhookDeliveryGet returns a delivery of an endpoint with its attempts, or delivery_not_found.
func (db *DB) WebhookDeliveryGet(ctx context.Context, webhookID, id string) (webhook.Delivery, error) {
	const doing = "read a delivery"
	row, err := db.q.WebhookDeliveryGet(ctx, db.pool, id)
	if isNoRows(err) || err == nil && row.WebhookID != webhookID {
		return webhook.Delivery{}, failure.Errorf(failure.NoDelivery, "webhook %s has no delivery %s", webhookID, id)
	}
	if err != nil {
		return webhook.Delivery{}, fault(doing, err)
	}
	d := delivery(dbsqlc.WebhookDeliveriesListRow(row))
	attempts, err := db.q.WebhookAttempts(ctx, db.pool, id)
	for _, a := range attempts {
		d.Attempts = append(d.Attempts, webhook.Attempt{
			No: int(a.No), At: a.At.UTC(), Duration: time.Duration(a.DurationMs) * time.Millisecond, Code: int(a.Code), Error: a.Error,
		})
	}
	return d, fault(doing, err)
}

// WebhookDeliveryList returns a page of the deliveries of an endpoint, newest first and without
// attempts, and the cursor of the next page. A status that is not empty filters them.
func (db *DB) WebhookDeliveryList(ctx context.Context, webhookID string, status webhook.Status, limit int, cursor string) (items []webhook.Delivery, next string, err error) {
	const doing = "list deliveries"
	if _, err := db.WebhookGet(ctx, webhookID); err != nil {
		return nil, "", err
	}
	var before deliveryCursor
	if cursor != "" {
		if err := cursorDecode(cursor, &before); err != nil {
			return nil, "", err
		}
	}
	rows, err := db.q.WebhookDeliveriesList(ctx, db.pool, &dbsqlc.WebhookDeliveriesListParams{
		WebhookID: webhookID, Status: string(status), Before: before.ID, MaxItems: int32(limit + 1),
	})
	for i, row := range rows {
		if i == limit {
			next = cursorEncode(deliveryCursor{items[limit-1].ID})
			break
		}
		items = append(items, delivery(row))
	}
	return items, next, fault(doing, err)
}

// WebhookRedeliver sends finished deliveries again: one by its id, or at most webhook.MaxReplay
// with one of the statuses that were made since a time, oldest first. It returns how many it sends.
func (db *DB) WebhookRedeliver(ctx context.Context, webhookID, id string, statuses []webhook.Status, since time.Time) (n int, err error) {
	err = db.inTx(ctx, "send deliveries again", pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := db.webhookEnabled(ctx, tx, webhookID); err != nil {
			return err
		}
		ids := []string{id}
		if id == "" {
			var names []string
			for _, s := range statuses {
				names = append(names, string(s))
			}
			if ids, err = db.q.WebhookDeliveriesOver(ctx, tx, &dbsqlc.WebhookDeliveriesOverParams{
				WebhookID: webhookID, Statuses: names, Since: since, MaxItems: webhook.MaxReplay,
			}); err != nil {
				return err
			}
		}
		again, err := db.q.WebhookRedeliver(ctx, tx, &dbsqlc.WebhookRedeliverParams{WebhookID: webhookID, Ids: ids})
		n = int(again)
		return err
	})
	return n, err
}

func delivery(row dbsqlc.WebhookDeliveriesListRow) webhook.Delivery {
	d := webhook.Delivery{
		ID: row.ID, EndpointID: row.WebhookID, SessionID: row.SessionID, Type: lifecycle.Type(row.Type), Status: webhook.Status(row.Status), Reason: row.Reason,
		Tries: int(row.Tries), NextAt: orZero(row.NextAt), CreatedAt: row.CreatedAt.UTC(), EndedAt: orZero(row.EndedAt),
	}
	if row.N != nil {
		d.Position = *row.N
	}
	return d
}
