package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// SecretPut stores the sealed form of a secret, and replaces an existing one with the same name;
// created is true if there was none. It returns illegal_state if there are MaxSecrets already. The
// old value stays masked, and the given hosts replace the old ones.
func (db *DB) SecretPut(ctx context.Context, name string, sealed []byte, hosts ...string) (info secret.Info, created bool, err error) {
	err = db.inTx(ctx, "store a secret", pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := db.secretReplaced(ctx, tx, name); err != nil {
			return err
		}
		if hosts == nil {
			hosts = []string{}
		}
		row, err := db.q.SecretPut(ctx, tx, &dbsqlc.SecretPutParams{Name: name, Sealed: sealed, Hosts: hosts})
		if err != nil {
			return err
		}
		if row.Created {
			count, err := db.q.SecretsCount(ctx, tx)
			if err != nil {
				return err
			}
			if count > secret.MaxStored {
				return failure.Errorf(failure.LimitReached, "there are %d secrets already; delete one first", secret.MaxStored)
			}
		}
		info = secret.Info{Name: row.Name, Hosts: row.Hosts, CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC()}
		created = row.Created
		return nil
	})
	return info, created, err
}

// SecretsList lists all secrets by name, without their values.
func (db *DB) SecretsList(ctx context.Context) ([]secret.Info, error) {
	rows, err := db.q.SecretsList(ctx, db.pool)
	if err != nil {
		return nil, fault("list secrets", err)
	}
	out := make([]secret.Info, len(rows))
	for i, row := range rows {
		out[i] = secret.Info{Name: row.Name, Hosts: row.Hosts, CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC()}
	}
	return out, nil
}

// SecretSealed returns the sealed form of a secret, or secret_not_found.
func (db *DB) SecretSealed(ctx context.Context, name string) ([]byte, error) {
	sealed, err := db.q.SecretGet(ctx, db.pool, name)
	if isNoRows(err) {
		return nil, noSecret(name)
	}
	return sealed, fault("read a secret", err)
}

// SealedSecret is a stored secret: its sealed form, and the hosts to which it is bound.
type SealedSecret struct {
	Sealed []byte
	Hosts  []string
}

// SecretsPresent returns the names for which a secret is stored.
func (db *DB) SecretsPresent(ctx context.Context, names []string) ([]string, error) {
	rows, err := db.q.SecretsPresent(ctx, db.pool, names)
	return rows, fault("look for secrets", err)
}

// SecretDelete deletes a secret, or returns secret_not_found. Its value stays masked.
func (db *DB) SecretDelete(ctx context.Context, name string) error {
	return db.inTx(ctx, "delete a secret", pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := db.secretReplaced(ctx, tx, name); err != nil {
			return err
		}
		n, err := db.q.SecretDelete(ctx, tx, name)
		if err == nil && n == 0 {
			return noSecret(name)
		}
		return err
	})
}

// secretReplaced keeps the current value of a secret for masking.
func (db *DB) secretReplaced(ctx context.Context, tx pgx.Tx, name string) error {
	if err := db.q.SecretReplaced(ctx, tx, name); err != nil {
		return err
	}
	return db.q.ReplacedSecretsTrim(ctx, tx, &dbsqlc.ReplacedSecretsTrimParams{
		Name: name, MaxOfName: secret.MaxReplacedValues, MaxItems: secret.MaxReplaced,
	})
}

// ReplacedSecret is a former value of a secret that was replaced or deleted.
type ReplacedSecret struct {
	ID     int64
	Name   string
	Sealed []byte
}

// SecretsReplaced returns the stored former values of secrets, oldest first.
func (db *DB) SecretsReplaced(ctx context.Context) ([]ReplacedSecret, error) {
	rows, err := db.q.ReplacedSecrets(ctx, db.pool)
	if err != nil {
		return nil, fault("read replaced secrets", err)
	}
	out := make([]ReplacedSecret, len(rows))
	for i, row := range rows {
		out[i] = ReplacedSecret{ID: row.ID, Name: row.Name, Sealed: row.Sealed}
	}
	return out, nil
}

// SecretReplacedReseal replaces the sealed form of a former value by another one of the same value.
func (db *DB) SecretReplacedReseal(ctx context.Context, id int64, sealed []byte) error {
	err := db.q.ReplacedSecretReseal(ctx, db.pool, &dbsqlc.ReplacedSecretResealParams{ID: id, Sealed: sealed})
	return fault("seal a replaced secret again", err)
}

func noSecret(name string) error {
	return failure.Errorf(failure.NoSecret, "there is no secret %s", name)
}

// SecretReseal replaces the sealed form of a secret by another one of the same value. It returns
// false, and changes nothing, if a client has stored or deleted the secret meanwhile.
func (db *DB) SecretReseal(ctx context.Context, name string, was, sealed []byte) (bool, error) {
	n, err := db.q.SecretReseal(ctx, db.pool, &dbsqlc.SecretResealParams{Name: name, Was: was, Sealed: sealed})
	return n > 0, fault("seal a secret again", err)
}

// SecretsMark returns a value that changes whenever a secret is stored, deleted or encrypted with another
// key. It is empty if there has never been a secret.
func (db *DB) SecretsMark(ctx context.Context) (string, error) {
	mark, err := db.q.SecretsMark(ctx, db.pool)
	return mark, fault("look for secrets", err)
}

// SecretsSealed returns all stored secrets by name.
func (db *DB) SecretsSealed(ctx context.Context) (map[string]SealedSecret, error) {
	rows, err := db.q.SecretsAll(ctx, db.pool)
	if err != nil {
		return nil, fault("read secrets", err)
	}
	out := make(map[string]SealedSecret, len(rows))
	for _, row := range rows {
		out[row.Name] = SealedSecret{Sealed: row.Sealed, Hosts: row.Hosts}
	}
	return out, nil
}
