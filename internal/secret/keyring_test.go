package secret_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/secret"
)

func masterKey(b byte) []byte { return bytes.Repeat([]byte{b}, secret.KeyBytes) }

func newBox(t *testing.T, current []byte, others ...[]byte) *secret.Keyring {
	t.Helper()
	keyring, err := secret.NewKeyring(current, others...)
	require.NoError(t, err)
	return keyring
}

// sealedByFirstRelease returns a value in the form of releases without key ids.
func sealedByFirstRelease(t *testing.T, master []byte, name, text string) []byte {
	t.Helper()
	block, err := aes.NewCipher(master)
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce)
	return aead.Seal(append([]byte{1}, nonce...), nonce, []byte(text), []byte(name))
}

func TestBoxOpensDataOfAllItsKeys(t *testing.T) {
	t.Parallel()
	old, fresh := newBox(t, masterKey(1)), newBox(t, masterKey(2))
	both := newBox(t, masterKey(2), masterKey(1))
	for _, sealed := range [][]byte{
		sealedByFirstRelease(t, masterKey(1), "API_KEY", planted),
		old.Seal("API_KEY", secret.NewValue(planted)),
		fresh.Seal("API_KEY", secret.NewValue(planted)),
	} {
		opened, err := both.Open("API_KEY", sealed)
		require.NoError(t, err)
		require.Equal(t, planted, opened.Reveal())
	}
	require.Equal(t, fresh.KeyID(), both.KeyID(), "it seals with the first")
	require.True(t, both.Current(fresh.Seal("A", secret.NewValue("x"))))
	require.False(t, both.Current(old.Seal("A", secret.NewValue("x"))))
	require.False(t, both.Current(sealedByFirstRelease(t, masterKey(2), "A", "x")))
	require.False(t, both.Current(nil))

	_, err := fresh.Open("API_KEY", old.Seal("API_KEY", secret.NewValue(planted)))
	require.ErrorIs(t, err, secret.ErrKeyMissing)
	require.ErrorContains(t, err, old.KeyID(), "the error names the key")
	_, err = fresh.Open("API_KEY", sealedByFirstRelease(t, masterKey(1), "API_KEY", planted))
	require.ErrorIs(t, err, secret.ErrSealed)
}

func TestMasterKeySealsNothing(t *testing.T) {
	t.Parallel()
	master := masterKey(3)
	block, err := aes.NewCipher(master)
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	sealed := newBox(t, master).Seal("A", secret.NewValue("x"))
	_, err = aead.Open(nil, sealed[9:21], sealed[21:], []byte("A"))
	require.Error(t, err)
}

func TestDataOpensForItsUseOwnerAndName(t *testing.T) {
	t.Parallel()
	keyring := newBox(t, masterKey(2), masterKey(1))
	sealed := newBox(t, masterKey(1)).SealData("transcripts", "ses_1", "a.jsonl", []byte(planted))
	require.True(t, secret.IsSealedData(sealed))
	require.NotContains(t, string(sealed), planted)
	data, err := keyring.OpenData("transcripts", "ses_1", "a.jsonl", sealed)
	require.NoError(t, err)
	require.Equal(t, planted, string(data))
	for _, other := range [][3]string{{"files", "ses_1", "a.jsonl"}, {"transcripts", "ses_2", "a.jsonl"}, {"transcripts", "ses_1", "b.jsonl"}} {
		_, err = keyring.OpenData(other[0], other[1], other[2], sealed)
		require.ErrorIs(t, err, secret.ErrSealed, "%v", other)
	}
	_, err = keyring.Open("a.jsonl", sealed)
	require.ErrorIs(t, err, secret.ErrSealed, "data is no secret")
	require.False(t, secret.IsSealedData([]byte("\x28\xb5\x2f\xfd a frame of zstd, which begins otherwise")))
}

func TestLinkKeysOutliveRotation(t *testing.T) {
	t.Parallel()
	old := newBox(t, masterKey(1))
	before, err := old.LinkKey(old.KeyID())
	require.NoError(t, err)
	require.NotEqual(t, masterKey(1), before)

	rotated := newBox(t, masterKey(2), masterKey(1))
	after, err := rotated.LinkKey(old.KeyID())
	require.NoError(t, err)
	require.Equal(t, before, after)
	first, err := rotated.LinkKey("")
	require.NoError(t, err)
	require.Equal(t, masterKey(1), first, "sandboxes of releases without key ids")
	_, err = newBox(t, masterKey(2)).LinkKey(old.KeyID())
	require.ErrorIs(t, err, secret.ErrKeyMissing)
}

func TestSignaturesAreOfUseAndKey(t *testing.T) {
	t.Parallel()
	old, current := bytes.Repeat([]byte{1}, secret.KeyBytes), bytes.Repeat([]byte{2}, secret.KeyBytes)
	before, err := secret.NewKeyring(old)
	require.NoError(t, err)
	during, err := secret.NewKeyring(current, old)
	require.NoError(t, err)
	after, err := secret.NewKeyring(current)
	require.NoError(t, err)
	signature := before.Sign("use", []byte("data"))
	require.True(t, before.Verify("use", []byte("data"), signature))
	require.True(t, during.Verify("use", []byte("data"), signature))
	require.False(t, after.Verify("use", []byte("data"), signature))
	require.False(t, before.Verify("other use", []byte("data"), signature))
	require.False(t, before.Verify("use", []byte("other data"), signature))
	require.False(t, before.Verify("use", []byte("data"), nil))
}

// TestDataOfManyOwnersIsSealed covers more owners than those whose ciphers are kept.
func TestDataOfManyOwnersIsSealed(t *testing.T) {
	t.Parallel()
	keyring := newBox(t, masterKey(1))
	sealed := map[string][]byte{}
	for i := range 5000 {
		owner := fmt.Sprint("ses_", i)
		sealed[owner] = keyring.SealData("state", owner, "run", []byte(owner))
	}
	other := newBox(t, masterKey(1))
	for owner, data := range sealed {
		text, err := other.OpenData("state", owner, "run", data)
		require.NoError(t, err)
		require.Equal(t, owner, string(text))
	}
	_, err := keyring.OpenData("state", "ses_2", "run", sealed["ses_1"])
	require.ErrorIs(t, err, secret.ErrSealed)
	_, err = keyring.OpenData("transcript", "ses_1", "run", sealed["ses_1"])
	require.ErrorIs(t, err, secret.ErrSealed)
}

//nolint:paralleltest // the test counts allocations
func TestKeyOfOwnerIsDerivedOnce(t *testing.T) {
	keyring := newBox(t, masterKey(1))
	data := []byte("state")
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { keyring.SealData("state", "ses_1", "run", data) }), 8.0)
}
