package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/secret"
)

const planted = "hunter2-planted"

func TestSealsUnderKeyAndName(t *testing.T) {
	t.Parallel()
	keyring, err := secret.NewKeyring(bytes.Repeat([]byte{1}, secret.KeyBytes))
	require.NoError(t, err)
	sealed := keyring.Seal("API_KEY", secret.NewValue(planted))
	require.NotContains(t, string(sealed), planted)
	require.NotEqual(t, sealed, keyring.Seal("API_KEY", secret.NewValue(planted)), "never the same bytes twice")

	opened, err := keyring.Open("API_KEY", sealed)
	require.NoError(t, err)
	require.Equal(t, planted, opened.Reveal())

	_, err = keyring.Open("OTHER", sealed)
	require.ErrorIs(t, err, secret.ErrSealed)
	other, err := secret.NewKeyring(bytes.Repeat([]byte{2}, secret.KeyBytes))
	require.NoError(t, err)
	_, err = other.Open("API_KEY", sealed)
	require.ErrorIs(t, err, secret.ErrSealed)
	require.NotEqual(t, keyring.KeyID(), other.KeyID())
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		_, err := keyring.Open("API_KEY", changed)
		require.ErrorIs(t, err, secret.ErrSealed, "byte %d changed", i)
		_, err = keyring.Open("API_KEY", sealed[:i])
		require.ErrorIs(t, err, secret.ErrSealed, "cut to %d bytes", i)
	}
	_, err = secret.NewKeyring([]byte("short"))
	require.ErrorContains(t, err, "must have 32")
}

func TestValueHidesText(t *testing.T) {
	t.Parallel()
	var read struct{ Key secret.Value }
	require.True(t, read.Key.Empty())
	require.NoError(t, json.Unmarshal([]byte(`{"Key": "`+planted+`"}`), &read))
	require.False(t, read.Key.Empty())
	require.Equal(t, planted, read.Key.Reveal())
	require.NotContains(t, fmt.Sprintf("%+v", read), planted)
}

func TestValueNeverPrints(t *testing.T) {
	t.Parallel()
	v := secret.NewValue(planted)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("message", slog.Any("value", v), slog.Any("in", []secret.Value{v}))
	asJSON, err := json.Marshal(map[string]any{"value": v})
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q", v, v, v, v, v), fmt.Sprint(struct{ V secret.Value }{v}), log.String(), string(asJSON)} {
		require.NotContains(t, text, planted)
		require.Contains(t, text, "[redacted]")
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"ANTHROPIC_API_KEY": true, "_X1": true, "git:github.com": true, "git:127.0.0.1:8080": true,
		"": false, "lower": false, "1X": false, "A B": false, "git:": false, "git:UPPER": false, "git:a/b": false, "git/x": false, "A=B": false,
	} {
		require.Equal(t, valid, secret.ValidName(name), name)
	}
	require.Equal(t, "git:example.com:8443", secret.GitName("example.com:8443"))
}
