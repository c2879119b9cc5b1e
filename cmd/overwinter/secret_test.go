package main

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

func keyText(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, secret.KeyBytes))
}

func keyringOf(t *testing.T, current string, previous ...string) *secret.Keyring {
	t.Helper()
	var others []secret.Value
	for _, text := range previous {
		others = append(others, secret.NewValue(text))
	}
	keyring, err := newKeyring(secret.NewValue(current), others)
	require.NoError(t, err)
	return keyring
}

// sealedByFirstRelease encrypts a value as releases without key ids did.
func sealedByFirstRelease(t *testing.T, b byte, name, text string) []byte {
	t.Helper()
	block, err := aes.NewCipher(bytes.Repeat([]byte{b}, secret.KeyBytes))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce)
	return aead.Seal(append([]byte{1}, nonce...), nonce, []byte(text), []byte(name))
}

func TestSecretRotateSealsEverythingWithNewKey(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	db := postgrestest.Open(t, url)
	put := func(name string, sealed []byte) {
		t.Helper()
		_, _, err := db.SecretPut(t.Context(), name, sealed)
		require.NoError(t, err)
	}
	old := keyringOf(t, keyText(1))
	put("FIRST_RELEASE", sealedByFirstRelease(t, 1, "FIRST_RELEASE", "value of FIRST_RELEASE"))
	put("OLD_KEY", old.Seal("OLD_KEY", secret.NewValue("value of OLD_KEY")))
	put("NEW_KEY", keyringOf(t, keyText(2)).Seal("NEW_KEY", secret.NewValue("value of NEW_KEY")))

	rotate := func(args ...string) result {
		return run(t.Context(), append([]string{"secret", "rotate", "--database-url=" + url}, args...)...)
	}
	r := rotate("--secret-key="+keyText(2), "--secret-key-previous="+keyText(9)+","+keyText(1))
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "2 secrets re-encrypted, 1 already current, 0 cannot be decrypted")
	fresh := keyringOf(t, keyText(2))
	for _, name := range []string{"FIRST_RELEASE", "OLD_KEY", "NEW_KEY"} {
		sealed, err := db.SecretSealed(t.Context(), name)
		require.NoError(t, err)
		value, err := fresh.Open(name, sealed)
		require.NoError(t, err, name)
		require.Equal(t, "value of "+name, value.Reveal())
	}
	r = rotate("--secret-key=" + keyText(2))
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "0 secrets re-encrypted, 3 already current")

	// A missing key is named, and no data is lost.
	put("FOREIGN", keyringOf(t, keyText(3)).Seal("FOREIGN", secret.NewValue("x")))
	r = rotate("--secret-key=" + keyText(2))
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, keyringOf(t, keyText(3)).KeyID())
	r = rotate("--secret-key="+keyText(2), "--secret-key-previous=short")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "OVERWINTER_SECRET_KEY_PREVIOUS")
}

// Clients store values, some of them through processes that still have the previous key, while two rotations
// run. No value may be lost, and a rotation after the last of them leaves nothing under the previous key.
func TestSecretRotateKeepsConcurrentWrites(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	old, both := keyringOf(t, keyText(1)), keyringOf(t, keyText(2), keyText(1))
	const names, rounds = 5, 40
	name := func(i int) string { return fmt.Sprintf("SECRET_%d", i) }
	for i := range names {
		_, _, err := db.SecretPut(t.Context(), name(i), old.Seal(name(i), secret.NewValue("first")))
		require.NoError(t, err)
	}
	var writers, rotations sync.WaitGroup
	done := make(chan struct{})
	for i := range names {
		writers.Go(func() {
			for round := range rounds {
				keyring := old
				if round%2 == 0 {
					keyring = both
				}
				_, _, err := db.SecretPut(t.Context(), name(i), keyring.Seal(name(i), secret.NewValue(fmt.Sprint("round ", round))))
				if err != nil {
					t.Error(err)
				}
				sealed, err := db.SecretSealed(t.Context(), name(i))
				if err != nil {
					t.Error(err)
				}
				if value, err := both.Open(name(i), sealed); err != nil || value.Reveal() != fmt.Sprint("round ", round) {
					t.Errorf("%s has %q after round %d: %v", name(i), value.Reveal(), round, err)
				}
			}
		})
	}
	for range 2 {
		rotations.Go(func() {
			for {
				if _, err := rotateSecrets(t.Context(), db, both, slog.New(slog.DiscardHandler)); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(done)
	rotations.Wait()
	_, err := rotateSecrets(t.Context(), db, both, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for i := range names {
		sealed, err := db.SecretSealed(t.Context(), name(i))
		require.NoError(t, err)
		require.True(t, both.Current(sealed))
		value, err := both.Open(name(i), sealed)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("round ", rounds-1), value.Reveal())
	}
}

func TestMaskerFollowsStoredSecrets(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	keyring := keyringOf(t, keyText(1))
	secrets, _ := maskedSecrets(db, keyring, slog.New(slog.DiscardHandler))
	keyless, _ := maskedSecrets(db, nil, slog.New(slog.DiscardHandler))
	for _, s := range []*storedSecrets{secrets, keyless} {
		masker, err := s.Masker(t.Context())
		require.NoError(t, err)
		require.Equal(t, "first-value", masker.Text("first-value"))
	}
	put := func(name, value string) {
		t.Helper()
		_, _, err := db.SecretPut(t.Context(), name, keyring.Seal(name, secret.NewValue(value)))
		require.NoError(t, err)
	}
	for _, value := range []string{"first-value", "second-value"} {
		put("KEY", value)
		masker, err := secrets.Masker(t.Context())
		require.NoError(t, err)
		require.Equal(t, "[redacted KEY]", masker.Text(value))
		require.Equal(t, "[redacted KEY]", secrets.text(value))
	}
	_, err := keyless.Masker(t.Context())
	require.Equal(t, failure.Unavailable, failure.CodeOf(err))
	// Sandboxes may still know replaced and deleted values. They are re-encrypted with a new key.
	require.NoError(t, db.SecretDelete(t.Context(), "KEY"))
	stillMasked := func(s *storedSecrets) {
		t.Helper()
		masker, err := s.Masker(t.Context())
		require.NoError(t, err)
		require.Equal(t, "[redacted KEY] [redacted KEY]", masker.Text("first-value second-value"))
	}
	stillMasked(secrets)
	newer := keyringOf(t, keyText(2), keyText(1))
	n, err := rotateSecrets(t.Context(), db, newer, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Equal(t, 2, n.replaced)
	onlyNew, _ := maskedSecrets(db, keyringOf(t, keyText(2)), slog.New(slog.DiscardHandler))
	stillMasked(onlyNew)
}

// TestKnownSecretsAreNotReadAgain checks this with a database that is closed after the first read.
func TestKnownSecretsAreNotReadAgain(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	keyring := keyringOf(t, keyText(1))
	_, _, err := db.SecretPut(t.Context(), "KEY", keyring.Seal("KEY", secret.NewValue("first-value")), "api.example.com")
	require.NoError(t, err)
	mark, err := db.SecretsMark(t.Context())
	require.NoError(t, err)
	secrets, _ := maskedSecrets(db, keyring, slog.New(slog.DiscardHandler))
	none, err := secrets.Secrets(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = secrets.Masker(t.Context())
	require.NoError(t, err)
	db.Close()
	known := secret.WithMark(t.Context(), mark)
	found, err := secrets.Secrets(known, []string{"KEY", "OTHER"})
	require.NoError(t, err)
	require.Equal(t, map[string]secret.Stored{"KEY": {Value: secret.NewValue("first-value"), Hosts: []string{"api.example.com"}}}, found)
	masker, err := secrets.Masker(known)
	require.NoError(t, err)
	require.Equal(t, "[redacted KEY]", masker.Text("first-value"))
	_, err = secrets.Secrets(secret.WithMark(t.Context(), "a newer mark"), []string{"KEY"})
	require.Error(t, err)
	_, err = secrets.Secrets(t.Context(), []string{"KEY"})
	require.Error(t, err, "without a mark, they are as they are now")
}

// TestRotatedSecretIsFound checks that a process that could not decrypt secrets finds those that are
// stored after a rotation to its key, and masks them and the replaced ones.
func TestRotatedSecretIsFound(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"KEY", "OTHER"}, {"OTHER"}} {
		db := postgrestest.New(t)
		old, current := keyringOf(t, keyText(1)), keyringOf(t, keyText(2))
		for _, name := range names {
			_, _, err := db.SecretPut(t.Context(), name, old.Seal(name, secret.NewValue(name+"-value")))
			require.NoError(t, err)
		}
		require.NoError(t, db.SecretDelete(t.Context(), "OTHER"))
		secrets, _ := maskedSecrets(db, current, slog.New(slog.DiscardHandler))
		for _, name := range names {
			masker, err := secrets.Masker(t.Context())
			require.NoError(t, err)
			require.Equal(t, name+"-value", masker.Text(name+"-value"), "it cannot be decrypted")
		}
		if slices.Contains(names, "KEY") {
			_, err := secrets.Secrets(t.Context(), []string{"KEY"})
			require.ErrorContains(t, err, "open secret KEY")
		}
		_, err := rotateSecrets(t.Context(), db, keyringOf(t, keyText(2), keyText(1)), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		for _, name := range names {
			masker, err := secrets.Masker(t.Context())
			require.NoError(t, err)
			require.Equal(t, "[redacted "+name+"]", masker.Text(name+"-value"))
		}
		if slices.Contains(names, "KEY") {
			found, err := secrets.Secrets(t.Context(), []string{"KEY"})
			require.NoError(t, err)
			require.Equal(t, "KEY-value", found["KEY"].Value.Reveal())
		}
	}
}

// A newly started process masks its first errors and logs, because agents may have received secrets
// long before.
func TestProcessMasksBeforeFirstRequest(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	keyring := keyringOf(t, keyText(1))
	_, _, err := db.SecretPut(t.Context(), "KEY", keyring.Seal("KEY", secret.NewValue("planted-value-1234")))
	require.NoError(t, err)
	var out bytes.Buffer
	secrets, logger := maskedSecrets(db, keyring, slog.New(slog.NewTextHandler(&out, nil)))
	require.NoError(t, secrets.load(t.Context()))
	logger.Info("a script printed planted-value-1234")
	require.Contains(t, out.String(), "[redacted KEY]")
	require.NotContains(t, out.String(), "planted-value-1234")
	require.Equal(t, "[redacted KEY]", secrets.text("planted-value-1234"))

	keyless, _ := maskedSecrets(db, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, keyless.load(t.Context()), "an api without the key starts")
}
