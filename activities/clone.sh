# Clones a repository into the workspace, once per sandbox.
# Arguments: workspace, state directory, URL, ref or nothing, and scheme and host of the URL. Stdin: user and password, a line each.
# Exits with 66 if the server has no such ref, and with 69 if git is not installed. The locale is C, because the worker reads git's messages.
set -eu
workspace=$1 mark=$2/workspace-cloned url=$3 ref=${4:-} OVERWINTER_GIT_PROTOCOL=${5:-} OVERWINTER_GIT_HOST=${6:-}
[ ! -e "$mark" ] || exit 0
# One attempt clones; the others wait for it and for every git that it started.
exec 9>>"$2/workspace-clone-lock"
flock 9
[ ! -e "$mark" ] || exit 0
IFS= read -r OVERWINTER_GIT_USER || :
IFS= read -r OVERWINTER_GIT_PASSWORD || :
export OVERWINTER_GIT_USER OVERWINTER_GIT_PASSWORD OVERWINTER_GIT_PROTOCOL OVERWINTER_GIT_HOST GIT_TERMINAL_PROMPT=0 LC_ALL=C
command -v git >/dev/null || { echo "there is no git in the image" >&2; exit 69; }

# Remove the files of an earlier attempt.
find "$workspace" -mindepth 1 -delete

# The helper reads the credentials from the environment, so that they are in no argv. It answers only for the host of
# the URL: git also asks for hosts of redirects, and hosts that the repository names.
helper='!f() { test "$1" = get || return 0; p=; h=; while IFS="=" read -r k v && test -n "$k"; do case "$k" in protocol) p=$v ;; host) h=$v ;; esac; done; test "$p" = "$OVERWINTER_GIT_PROTOCOL" && test "$h" = "$OVERWINTER_GIT_HOST" || { echo "$p://$h asks for credentials; those of the repository are sent to $OVERWINTER_GIT_PROTOCOL://$OVERWINTER_GIT_HOST only" >&2; return 0; }; printf "username=%s\npassword=%s\n" "$OVERWINTER_GIT_USER" "$OVERWINTER_GIT_PASSWORD"; }; f'
git_with_credentials() {
	if [ -n "$OVERWINTER_GIT_USER$OVERWINTER_GIT_PASSWORD" ]; then
		git -c gc.auto=0 -c credential.helper= -c "credential.helper=$helper" "$@"
	else
		git -c gc.auto=0 -c credential.helper= "$@"
	fi
}

# fetch_ref checks out a ref that is not part of the clone. git exits with the same code if the server does not respond
# and if it has no such ref, so a failure is followed by a listing of refs.
fetch_ref() {
	code=0
	git_with_credentials fetch --quiet origin "$ref" || code=$?
	if [ "$code" -ne 0 ]; then
		listed=0
		git_with_credentials ls-remote --exit-code origin "refs/heads/$ref" "refs/tags/$ref" "refs/$ref" "refs/${ref#refs/}" >/dev/null || listed=$?
		[ "$listed" -eq 2 ] || exit "$code"
		# It may be a commit, which the server does not list.
		git_with_credentials fetch --quiet origin "$ref" 2>/dev/null || { echo "the repository has no branch, tag or commit $ref" >&2; exit 66; }
	fi
	git checkout --quiet --detach FETCH_HEAD
}

git_with_credentials clone --quiet -- "$url" "$workspace"
if [ -n "$ref" ]; then
	cd "$workspace"
	# The clone contains branches and tags; a commit may have to be fetched.
	git checkout --quiet "$ref" -- 2>/dev/null || fetch_ref
fi
: >"$mark"
