# A master that becomes a daemon and starts workers as another user: requests, a reload, a new binary's signal, the end.
export PATH=$PATH:/usr/sbin
mkdir -p site logs
for number in $(seq 50); do echo "page $number"; done >site/index.html
head -c 300000 /dev/zero | tr '\0' x >site/large.txt
settings() {
  cat >nginx.conf <<END
worker_processes $1; pid $PWD/pid; error_log $PWD/logs/error.log notice; lock_file $PWD/lock;
events { worker_connections 64; }
http {
  access_log $PWD/logs/access.log;
  client_body_temp_path $PWD/body; proxy_temp_path $PWD/proxy; fastcgi_temp_path $PWD/fastcgi; uwsgi_temp_path $PWD/uwsgi; scgi_temp_path $PWD/scgi;
  gzip on; gzip_types text/plain; gzip_min_length 100;
  server {
    listen unix:$PWD/socket; root $PWD/site;
    location /version { return 200 "version $2\n"; }
    location /through/ { proxy_pass http://unix:$PWD/socket:/; }
  }
}
END
}
request() { curl --silent --show-error --max-time 60 --unix-socket socket "$@"; }
settings 2 1
nginx -p "$PWD" -c nginx.conf -e logs/first -t
nginx -p "$PWD" -c nginx.conf -e logs/first
request http://local/version
request http://local/ | tail -n 1
request --compressed http://local/large.txt | sha256sum
request http://local/through/large.txt | sha256sum
request -o /dev/null -w '%{http_code}\n' http://local/none
settings 3 2
nginx -p "$PWD" -c nginx.conf -e logs/first -s reload
for try in $(seq 300); do [ "$(request http://local/version)" = 'version 2' ] && break; sleep 0.1; done
request http://local/version
# A killed worker is replaced.
pkill -KILL -P "$(cat pid)" -o
for number in $(seq 20); do request http://local/version; done 2>/dev/null | sort -u
nginx -p "$PWD" -c nginx.conf -e logs/first -s quit
for try in $(seq 300); do [ -e pid ] || break; sleep 0.1; done
[ -e pid ] && echo "the server does not end"
grep -c ' exited on signal 9' logs/error.log
grep -oE '\[(alert|emerg|crit|error)\].*' logs/error.log | grep -v 'exited on signal 9' | sed 's/[0-9][0-9]*#[0-9]*: //; s/^\*[0-9]* //'
