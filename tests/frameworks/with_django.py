"""Django, configured as its documentation says for a proxy: CsrfViewMiddleware, signed cookies for sessions, APPEND_SLASH."""

import hashlib
import os
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=[".tollhouse.localhost"],
    CSRF_COOKIE_SECURE=True,
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.urandom(32).hex(),
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    SECURE_SSL_REDIRECT=True,
    SESSION_COOKIE_SECURE=True,
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    USE_X_FORWARDED_HOST=True,
)


def sign_in(request):
    if request.method == "GET":
        return HttpResponse(f'<form method="post"><input name="token" value="{get_token(request)}"></form>')
    request.session["user"] = request.POST["user"]
    return HttpResponseRedirect("/home/")


def home(request):
    return HttpResponse(request.session.get("user", "nobody"))


def upload(request):
    return HttpResponse(hashlib.sha256(request.FILES["file"].read()).hexdigest())


def absolute(request):
    return HttpResponse(request.build_absolute_uri("/home/"))


urlpatterns = [path("sign-in/", sign_in), path("home/", home), path("upload/", upload), path("absolute/", absolute)]

if __name__ == "__main__":
    django.setup()
    execute_from_command_line(["django", "runserver", "--noreload", f"127.0.0.1:{sys.argv[1]}"])
