package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/webhook"
)

func noWebhook(id string) error {
	return failure.Errorf(failure.NoWebhook, "there is no webhook %s", id)
}

// WebhookCreate stores an endpoint and its sealed secret. The endpoint receives events from then
// on. It returns limit_reached if there are webhook.MaxEndpoints.
func (db *DB) WebhookCreate(ctx context.Context, e webhook.Endpoint, sealed []byte) (out webhook.Endpoint, err error) {
	err = db.inTx(ctx, "store a webhook", pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := db.q.WebhooksLock(ctx, tx); err != nil {
			return err
		}
		count, err := db.q.WebhooksCount(ctx, tx)
		if err != nil {
			return err
		}
		if count >= webhook.MaxEndpoints {
			return failure.Errorf(failure.LimitReached, "there are %d webhooks already; delete one first", webhook.MaxEndpoints)
		}
		row, err := db.q.WebhookInsert(ctx, tx, &dbsqlc.WebhookInsertParams{
			ID: e.ID, Url: e.URL, Description: e.Description, Types: typeNames(e.Filter.Types), SessionID: e.Filter.SessionID, Agent: e.Filter.Agent,
			Metadata: filterMetadata(e.Filter), Sealed: sealed,
		})
		out = endpoint(row, 0)
		return err
	})
	return out, err
}

// WebhookList lists the endpoints, newest first.
func (db *DB) WebhookList(ctx context.Context) ([]webhook.Endpoint, error) {
	const doing = "list webhooks"
	rows, err := db.q.WebhooksList(ctx, db.pool)
	if err != nil {
		return nil, fault(doing, err)
	}
	pending, err := db.webhooksPending(ctx, rows...)
	out := make([]webhook.Endpoint, len(rows))
	for i, row := range rows {
		out[i] = endpoint(row, pending[row.ID])
	}
	return out, fault(doing, err)
}

// WebhookGet returns an endpoint, or webhook_not_found.
func (db *DB) WebhookGet(ctx context.Context, id string) (webhook.Endpoint, error) {
	const doing = "read a webhook"
	row, err := db.q.WebhookGet(ctx, db.pool, id)
	if isNoRows(err) {
		return webhook.Endpoint{}, noWebhook(id)
	}
	if err != nil {
		return webhook.Endpoint{}, fault(doing, err)
	}
	pending, err := db.webhooksPending(ctx, row)
	return endpoint(row, pending[id]), fault(doing, err)
}

func (db *DB) webhooksPending(ctx context.Context, rows ...dbsqlc.Webhook) (map[string]int64, error) {
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	counts, err := db.q.WebhooksPending(ctx, db.pool, ids)
	out := map[string]int64{}
	for _, c := range counts {
		out[c.WebhookID] = c.N
	}
	return out, err
}

// WebhookUpdate changes an endpoint. An endpoint that is enabled receives events from then on;
// pending deliveries of an endpoint that is disabled fail.
func (db *DB) WebhookUpdate(ctx context.Context, id string, change func(*webhook.Endpoint)) (webhook.Endpoint, error) {
	err := db.inTx(ctx, "change a webhook", pgx.TxOptions{}, func(tx pgx.Tx) error {
		row, err := db.q.WebhookLock(ctx, tx, id)
		if isNoRows(err) {
			return noWebhook(id)
		}
		if err != nil {
			return err
		}
		e := endpoint(row, 0)
		change(&e)
		if !e.Enabled {
			if err := db.webhookGiveUp(ctx, tx, id); err != nil {
				return err
			}
		}
		return db.q.WebhookUpdate(ctx, tx, &dbsqlc.WebhookUpdateParams{
			ID: id, Url: e.URL, Description: e.Description, Types: typeNames(e.Filter.Types), SessionID: e.Filter.SessionID, Agent: e.Filter.Agent,
			Metadata: filterMetadata(e.Filter), Enabled: e.Enabled,
		})
	})
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return db.WebhookGet(ctx, id)
}

func (db *DB) webhookGiveUp(ctx context.Context, tx pgx.Tx, id string) error {
	return db.q.WebhookDeliveriesGiveUp(ctx, tx, &dbsqlc.WebhookDeliveriesGiveUpParams{WebhookID: id, Reason: webhook.ReasonDisabled})
}

// WebhookRotate replaces the secret of an endpoint. The previous secret also signs deliveries until
// the overlap ends.
func (db *DB) WebhookRotate(ctx context.Context, id string, sealed []byte, overlap time.Duration) (webhook.Endpoint, error) {
	err := db.inTx(ctx, "rotate the secret of a webhook", pgx.TxOptions{}, func(tx pgx.Tx) error {
		if _, err := db.q.WebhookLock(ctx, tx, id); isNoRows(err) {
			return noWebhook(id)
		} else if err != nil {
			return err
		}
		return db.q.WebhookRotate(ctx, tx, &dbsqlc.WebhookRotateParams{ID: id, Sealed: sealed, OverlapSeconds: overlap.Seconds()})
	})
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return db.WebhookGet(ctx, id)
}

// WebhookDelete deletes an endpoint with its deliveries.
func (db *DB) WebhookDelete(ctx context.Context, id string) error {
	n, err := db.q.WebhookDelete(ctx, db.pool, id)
	if err == nil && n == 0 {
		return noWebhook(id)
	}
	return fault("delete a webhook", err)
}

// WebhooksReseal replaces the secrets that reseal changes, and returns how many it changed, and how
// many could not be opened.
func (db *DB) WebhooksReseal(ctx context.Context, reseal func(id string, sealed []byte) (resealed []byte, changed bool, err error)) (changed, failed int, err error) {
	const doing = "seal the secrets of webhooks again"
	rows, err := db.q.WebhookSecrets(ctx, db.pool)
	if err != nil {
		return 0, 0, fault(doing, err)
	}
	for _, row := range rows {
		next, first, err := reseal(row.ID, row.Sealed)
		old, second, oldErr := row.OldSealed, false, error(nil)
		if row.OldSealed != nil {
			old, second, oldErr = reseal(row.ID, row.OldSealed)
		}
		if err != nil || oldErr != nil {
			failed++
			continue
		}
		if !first && !second {
			continue
		}
		n, err := db.q.WebhookReseal(ctx, db.pool, &dbsqlc.WebhookResealParams{ID: row.ID, Sealed: next, OldSealed: old, Was: row.Sealed})
		if err != nil {
			return changed, failed, fault(doing, err)
		}
		changed += int(n)
	}
	return changed, failed, nil
}

func endpoint(row dbsqlc.Webhook, pending int64) webhook.Endpoint {
	e := webhook.Endpoint{
		ID: row.ID, URL: row.Url, Description: row.Description, Enabled: row.Enabled, DisabledReason: row.DisabledReason, Pending: pending,
		FailingSince: orZero(row.FailingSince), CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
		Filter: webhookFilter(row.Types, row.SessionID, row.Agent, row.Metadata),
	}
	if until := orZero(row.RotatedUntil); until.After(time.Now()) {
		e.RotatedUntil = until
	}
	return e
}

func webhookFilter(types []string, sessionID, agent string, metadata []byte) lifecycle.Filter {
	f := lifecycle.Filter{SessionID: sessionID, Agent: agent}
	for _, t := range types {
		f.Types = append(f.Types, lifecycle.Type(t))
	}
	var texts map[string]string
	if json.Unmarshal(metadata, &texts) == nil && len(texts) > 0 {
		f.Metadata = texts
	}
	return f
}

func typeNames(types []lifecycle.Type) []string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return names
}

func filterMetadata(f lifecycle.Filter) []byte {
	if len(f.Metadata) == 0 {
		return []byte(`{}`)
	}
	data, err := json.Marshal(f.Metadata)
	if err != nil {
		panic(err) // strings always marshal
	}
	return data
}
