# Clones a repository into the workspace, once per sandbox.
# Arguments: workspace, state directory, URL, ref or nothing, and scheme and host of the URL. Stdin: user and password, a line each.
# Exits with 66 if the server answers and has no such ref, and with 69 if there is no git. The locale is C: the worker reads git's messages.
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

# Remove what an earlier attempt left.
find "$workspace" -mindepth 1 -delete

# The helper reads the credentials from the environment, so that no argv holds them. It answers for the host of the
# URL only: git also asks for hosts that it was redirected to, and that the repository names.
helper='!f() { test "$1" = get || return 0; p=; h=; while IFS="=" read -r k v && test -n "$k"; do case "$k" in protocol) p=$v ;; host) h=$v ;; esac; done; test "$p" = "$OVERWINTER_GIT_PROTOCOL" && test "$h" = "$OVERWINTER_GIT_HOST" || { echo "$p://$h asks for credentials; those of the repository are sent to $OVERWINTER_GIT_PROTOCOL://$OVERWINTER_GIT_HOST only" >&2; return 0; }; printf "username=%s\npassword=%s\n" "$OVERWINTER_GIT_USER" "$OVERWINTER_GIT_PASSWORD"; }; f'
git_with_credentials() {
	if [ -n "$OVERWINTER_GIT_USER$OVERWINTER_GIT_PASSWORD" ]; then
		git -c gc.auto=0 -c credential.helper= -c "credential.helper=$helper" "$@"
	else
		git -c gc.auto=0 -c credential.helper= "$@"
	fi
}

# fetch_ref checks out what the server has under a name that did not come with the clone. git exits alike for a server that
# does not answer and one that has no such ref, so a failure is followed by the question which refs there are.
fetch_ref() {
	code=0
	git_with_credentials fetch --quiet origin "$ref" || code=$?
	if [ "$code" -ne 0 ]; then
		listed=0
		git_with_credentials ls-remote --exit-code origin "refs/heads/$ref" "refs/tags/$ref" "refs/$ref" "refs/${ref#refs/}" >/dev/null || listed=$?
		[ "$listed" -eq 2 ] || exit "$code"
		# It may be a commit, which is not listed.
		git_with_credentials fetch --quiet origin "$ref" 2>/dev/null || { echo "the repository has no branch, tag or commit $ref" >&2; exit 66; }
	fi
	git checkout --quiet --detach FETCH_HEAD
}

git_with_credentials clone --quiet -- "$url" "$workspace"
if [ -n "$ref" ]; then
	cd "$workspace"
	# A branch or a tag came with the clone; a commit may have to be asked for.
	git checkout --quiet "$ref" -- 2>/dev/null || fetch_ref
fi
: >"$mark"
