package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/overwinter-dev/overwinter/internal/backoff"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// storedSecrets decrypts and masks the secrets in Postgres. They are read again only after they have
// changed.
type storedSecrets struct {
	db      *postgres.DB
	keyring *secret.Keyring // nil for a process without the key of the installation
	logger  *slog.Logger
	// changed is called with each new masker. Default: it is not called.
	changed func(*secret.Masker)

	mu   sync.Mutex
	read readSecrets
}

// readSecrets are the secrets that were stored when a mark was read, or later.
type readSecrets struct {
	mark   string // empty if there has never been a secret
	opened map[string]openedSecret
	masker *secret.Masker
}

// openedSecret is a stored secret, or why it could not be decrypted.
type openedSecret struct {
	secret.Stored
	err error
}

// Secrets returns the stored secrets among the named ones, by name, as they are now or were when the mark
// of the context was read.
func (s *storedSecrets) Secrets(ctx context.Context, names []string) (map[string]secret.Stored, error) {
	if len(names) == 0 {
		return nil, nil
	}
	read, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]secret.Stored, len(names))
	for _, name := range names {
		switch found, ok := read.opened[name]; {
		case found.err != nil:
			return nil, fmt.Errorf("open secret %s: %w", name, found.err)
		case ok:
			out[name] = found.Stored
		}
	}
	return out, nil
}

// Masker returns a masker for the secrets that are stored now, or were when the mark of the context was
// read, and for replaced and deleted values. The error is unavailable if there are secrets and this
// process has no key.
func (s *storedSecrets) Masker(ctx context.Context) (*secret.Masker, error) {
	read, err := s.current(ctx)
	return read.masker, err
}

// current returns the secrets with the current mark, or that of the context.
func (s *storedSecrets) current(ctx context.Context) (readSecrets, error) {
	mark, ok := secret.MarkOf(ctx)
	if !ok {
		var err error
		if mark, err = s.db.SecretsMark(ctx); err != nil {
			return readSecrets{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if mark == s.read.mark {
		return s.read, nil
	}
	if s.keyring == nil {
		return readSecrets{}, failure.Errorf(failure.Unavailable, "this api has no OVERWINTER_SECRET_KEY, so it cannot mask stored secrets")
	}
	all, err := s.db.SecretsSealed(ctx)
	if err != nil {
		return readSecrets{}, err
	}
	opened := make(map[string]openedSecret, len(all))
	var values []secret.Named
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value, err := s.keyring.Open(name, all[name].Sealed)
		opened[name] = openedSecret{secret.Stored{Value: value, Hosts: all[name].Hosts}, err}
		if err != nil { // agents do not receive it either
			s.logger.ErrorContext(ctx, "could not decrypt secret; it is not masked", slog.String("secret", name), slog.Any("error", err))
			continue
		}
		values = append(values, secret.Named{Name: name, Value: value})
	}
	// Sandboxes may still know values that were replaced or deleted.
	replaced, err := s.db.SecretsReplaced(ctx)
	if err != nil {
		return readSecrets{}, err
	}
	for _, r := range replaced {
		value, err := s.keyring.Open(r.Name, r.Sealed)
		if err != nil {
			s.logger.WarnContext(ctx, "could not decrypt replaced secret; it is not masked", slog.String("secret", r.Name), slog.Any("error", err))
			continue
		}
		values = append(values, secret.Named{Name: r.Name, Value: value})
	}
	// The next call finds secrets that were stored between the statements, because the mark is the
	// older one.
	s.read = readSecrets{mark: mark, opened: opened, masker: secret.NewMasker(values)}
	if s.changed != nil {
		s.changed(s.read.masker)
	}
	return s.read, nil
}

// maskedSecrets returns the stored secrets, and a logger that masks them.
func maskedSecrets(db *postgres.DB, keyring *secret.Keyring, logger *slog.Logger) (*storedSecrets, *slog.Logger) {
	var mask secret.LogMask
	logger = slog.New(mask.Handler(logger.Handler()))
	return &storedSecrets{db: db, keyring: keyring, logger: logger, changed: mask.Set}, logger
}

// remaskEvery is how often a process reads newly stored secrets for masking its logs and errors.
// Responses to clients and the output of agents are always masked with the secrets stored at the
// time.
const remaskEvery = 10 * time.Second

// load reads the secrets to mask once the database responds. A process without the key masks
// nothing, and reports that when a masker is requested.
func (s *storedSecrets) load(ctx context.Context) error {
	return backoff.Retry(ctx, startupPauses(), func(ctx context.Context) error {
		_, err := s.Masker(ctx)
		if err == nil || s.keyring == nil {
			return nil
		}
		s.logger.WarnContext(ctx, "could not read the secrets to mask; retrying", slog.Any("error", err))
		return retry.RetryableError(err)
	})
}

// follow rereads the secrets at intervals until ctx ends.
func (s *storedSecrets) follow(ctx context.Context) error {
	ticker := time.NewTicker(remaskEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if _, err := s.Masker(ctx); err != nil && s.keyring != nil && ctx.Err() == nil {
			s.logger.WarnContext(ctx, "could not read the secrets to mask; masking the previous ones", slog.Any("error", err))
		}
	}
}

// text masks the most recently read secrets in a text.
func (s *storedSecrets) text(text string) string {
	s.mu.Lock()
	masker := s.read.masker
	s.mu.Unlock()
	return masker.Text(text)
}
