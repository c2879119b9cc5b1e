package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/webhook"
)

// secretCmd manages secrets, through the API, and the key of the installation, in its database.
type secretCmd struct {
	List   secretListCmd   `cmd:"" help:"List the names of the stored secrets. No call returns a value."`
	Set    secretSetCmd    `cmd:"" help:"Store a secret. The value is read from standard input, or from the terminal without echo."`
	Delete secretDeleteCmd `cmd:"" help:"Delete a secret."`
	Rotate secretRotateCmd `cmd:"" help:"Re-encrypt with OVERWINTER_SECRET_KEY everything that was encrypted with a key of OVERWINTER_SECRET_KEY_PREVIOUS."`
}

// secretRotateCmd re-encrypts stored data with the current key. It can be interrupted, repeated,
// and run while the system works: values that a client or a worker stores in the meantime are never
// replaced.
type secretRotateCmd struct {
	databaseFlags
	secretFlags
}

// Run prints its result. It fails if the current key cannot decrypt some of the data.
func (c *secretRotateCmd) Run(ctx context.Context, logger *slog.Logger, s streams) error {
	keyring, err := c.keyring()
	if err != nil {
		return err
	}
	db, err := c.openSealed(ctx, logger, keyring)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.SchemaCheck(ctx); err != nil {
		return err
	}
	secrets, err := rotateSecrets(ctx, db, keyring, logger)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.stdout, "key %s: %d secrets re-encrypted, %d already current, %d cannot be decrypted\n",
		keyring.KeyID(), secrets.changed, secrets.current, secrets.failed); err != nil {
		return err
	}
	unread, err := resealTranscripts(ctx, db, s)
	if err != nil {
		return err
	}
	archived, unreadArchived, err := db.ArchivesReseal(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.stdout, "%d parts of archives re-encrypted, %d cannot be decrypted\n", archived, unreadArchived); err != nil {
		return err
	}
	states, unreadStates, err := db.RunsReseal(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.stdout, "%d states of turns re-encrypted, %d cannot be decrypted\n", states, unreadStates); err != nil {
		return err
	}
	unreadEndpoints, err := resealWebhooks(ctx, db, keyring, s)
	if err != nil {
		return err
	}
	if unreadEndpoints > 0 {
		return fmt.Errorf("%d secrets of webhooks cannot be decrypted with any key; pass the missing key in OVERWINTER_SECRET_KEY_PREVIOUS, or rotate them", unreadEndpoints)
	}
	if unreadStates > 0 {
		return fmt.Errorf("%d states of turns cannot be decrypted with any key; pass the missing key in OVERWINTER_SECRET_KEY_PREVIOUS", unreadStates)
	}
	if unread > 0 {
		return fmt.Errorf("%d parts of transcripts cannot be decrypted with any key; pass the missing key in OVERWINTER_SECRET_KEY_PREVIOUS", unread)
	}
	if secrets.failed > 0 {
		return fmt.Errorf("%d secrets cannot be decrypted with any key; pass the missing key in OVERWINTER_SECRET_KEY_PREVIOUS, or store them again",
			secrets.failed)
	}
	return nil
}

// resealTranscripts re-encrypts the transcripts and returns how many of their parts cannot be
// decrypted.
func resealTranscripts(ctx context.Context, db *postgres.DB, s streams) (unread int, err error) {
	parts := 0
	for after := ""; ; {
		resealed, failed, next, err := db.TranscriptsReseal(ctx, after)
		if err != nil {
			return 0, err
		}
		parts, unread = parts+resealed, unread+failed
		if after = next; next == "" {
			break
		}
	}
	_, err = fmt.Fprintf(s.stdout, "%d parts of transcripts re-encrypted, %d cannot be decrypted\n", parts, unread)
	return unread, err
}

// resealWebhooks re-encrypts the secrets of webhooks and returns how many cannot be decrypted.
func resealWebhooks(ctx context.Context, db *postgres.DB, keyring *secret.Keyring, s streams) (unread int, err error) {
	resealed, unread, err := db.WebhooksReseal(ctx, func(id string, sealed []byte) ([]byte, bool, error) {
		if keyring.Current(sealed) {
			return sealed, false, nil
		}
		value, err := keyring.Open(webhook.SealName(id), sealed)
		if err != nil {
			return nil, false, err
		}
		return keyring.Seal(webhook.SealName(id), value), true, nil
	})
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(s.stdout, "%d secrets of webhooks re-encrypted, %d cannot be decrypted\n", resealed, unread)
	return unread, err
}

// rotated counts the results of a rotation.
type rotated struct{ changed, current, failed, replaced int }

// rotateSecrets re-encrypts the stored secrets. A secret that changes in the meantime is checked
// again, because a process that still has the previous key may have stored it.
func rotateSecrets(ctx context.Context, db *postgres.DB, keyring *secret.Keyring, logger *slog.Logger) (rotated, error) {
	var n rotated
	infos, err := db.SecretsList(ctx)
	if err != nil {
		return n, err
	}
	for _, info := range infos {
		for {
			sealed, err := db.SecretSealed(ctx, info.Name)
			if failure.CodeOf(err) == failure.NoSecret {
				break
			}
			if err != nil {
				return n, err
			}
			if keyring.Current(sealed) {
				n.current++
				break
			}
			value, err := keyring.Open(info.Name, sealed)
			if err != nil {
				n.failed++
				logger.ErrorContext(ctx, "could not decrypt secret", slog.String("secret", info.Name), slog.Any("error", err))
				break
			}
			replaced, err := db.SecretReseal(ctx, info.Name, sealed, keyring.Seal(info.Name, value))
			if err != nil {
				return n, err
			}
			if replaced {
				n.changed++
				break
			}
		}
	}
	return n, rotateReplaced(ctx, db, keyring, logger, &n)
}

// rotateReplaced re-encrypts the values of replaced and deleted secrets. A value that cannot be
// decrypted is no longer masked, and no agent receives it.
func rotateReplaced(ctx context.Context, db *postgres.DB, keyring *secret.Keyring, logger *slog.Logger, n *rotated) error {
	replaced, err := db.SecretsReplaced(ctx)
	if err != nil {
		return err
	}
	for _, r := range replaced {
		if keyring.Current(r.Sealed) {
			continue
		}
		value, err := keyring.Open(r.Name, r.Sealed)
		if err != nil {
			logger.WarnContext(ctx, "could not decrypt replaced secret", slog.String("secret", r.Name), slog.Any("error", err))
			continue
		}
		if err := db.SecretReplacedReseal(ctx, r.ID, keyring.Seal(r.Name, value)); err != nil {
			return err
		}
		n.replaced++
	}
	return nil
}
