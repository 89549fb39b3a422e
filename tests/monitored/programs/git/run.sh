# A repository with some hundred commits, branches and a merge, packed by two threads, cloned, checked, bundled, and hooks.
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git -c init.defaultBranch=main init --quiet one
cd one
git config gc.auto 0
git config pack.threads 2
printf '#!/bin/sh\necho hook >>../hooks\n' >.git/hooks/pre-commit
chmod +x .git/hooks/pre-commit
for number in $(seq 40); do
  for line in $(seq $number); do echo "line $line of $number"; done >file$((number % 7))
  git add .
  git commit --quiet --message "commit $number"
done
for number in $(seq 200); do printf 'commit refs/heads/fast\ncommitter C <c@example.org> %d +0000\ndata 4\nfast\nM 644 inline f%d\ndata 5\ntext\n\n' $((1600000000 + number)) $((number % 50)); done |
  git fast-import --quiet
git checkout --quiet -b side HEAD~10
echo side >side
git add side
git commit --quiet --message side
git checkout --quiet main
git merge --quiet --no-edit side
git gc --quiet --aggressive --prune=now
git fsck --full --strict
git count-objects -v | grep -E 'in-pack|packs|garbage'
cd ..
git clone --quiet one two
git clone --quiet --depth 5 "file://$PWD/one" three
git -C three log --oneline | wc -l
git -C two log --format=%H | sha256sum
git -C two rev-list --all --count
git -C two grep -c 'line 5 ' HEAD
git -C two blame file3 | tail -n 1
git -C two log -p --stat | sha256sum
git -C two archive HEAD | sha256sum
git -C one bundle create --quiet ../all.bundle --all
git bundle verify --quiet all.bundle
git -C two rebase --quiet HEAD~3 && git -C two stash list
git -C two nonexistent-command
echo "exit code $?"
wc -l <hooks
